"""The status of a ModelVersion, computed whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from modelcache_api.conditions import Verdict, merge_conditions
from modelcache_api.labels import make_node_label_key
from modelcache_api.manifest import SourceFile, SourceManifest
from modelcache_api.names import Condition, Reason
from modelcache_api.quantities import format_bytes
from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_api.v1alpha1.model_version import (
    ModelVersionStatus,
    NodeCounts,
    OnSourceGone,
    SourceIdentity,
)
from modelcache_operator.decide.pin import describe_pin_conflict
from modelcache_operator.decide.source_check import SourceFinding
from modelcache_operator.decide.withdrawal import DROPPED
from modelcache_operator.decide.world import ModelVersionView

# First words of what is said of a source that is gone; the rest is what was found.
_KEEPING: Final = "verified copies stay, as spec.onSourceGone says: "
_DROPPING: Final = f"{DROPPED}: "


def _identity_of(file: SourceFile) -> SourceIdentity:
    if file.version_id is not None:
        return SourceIdentity.VERSION_ID
    is_dated = file.etag is None and file.last_modified is not None
    return SourceIdentity.LAST_MODIFIED if is_dated else SourceIdentity.ETAG


@dataclass(frozen=True, slots=True)
class ResolvedSource:
    """What the source was when it was listed."""

    source_digest: str
    size_bytes: int
    files: int
    revision: str | None = None
    identity: SourceIdentity | None = None

    @classmethod
    def of(cls, manifest: SourceManifest) -> ResolvedSource:
        """What the manifest of a new resolution comes to."""
        kinds = {_identity_of(file) for file in manifest.files}
        identity = kinds.pop() if len(kinds) == 1 else SourceIdentity.MIXED
        return cls(
            manifest.digest, manifest.size_bytes, len(manifest.files), manifest.revision, identity
        )


@dataclass(frozen=True, slots=True)
class RefusedSource:
    """Why the source cannot be listed. `needs_help` if waiting alone will not cure it."""

    reason: Reason
    message: str
    needs_help: bool


@dataclass(frozen=True, slots=True)
class KnownContent:
    """The adopted content: digest of the bytes, digest of the stored manifest."""

    content_digest: str
    manifest_digest: str


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """What is known of a resolved version's source since, and when it last answered so."""

    finding: SourceFinding
    checked_at: datetime | None


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """What the status of one ModelVersion is computed from. `source` None: not listed yet.

    `loss` says why the list of a resolved version's files is gone and cannot be restored. `check`
    is None where the source is not looked at again, or has not been yet. Nodes in host count as
    nodes on disk, too.
    """

    version: ModelVersionView
    source: ResolvedSource | RefusedSource | None
    content: KnownContent | None
    nodes_on_disk: int
    loss: RefusedSource | None = None
    check: SourceCheck | None = None
    nodes_in_host: int = 0
    nodes_on_gpu: int = 0


def source_in_status(version: ModelVersionView) -> ResolvedSource | None:
    """What an earlier resolution found. A version is resolved once and never again."""
    status = version.status
    if status.source_digest is None or status.size_bytes is None:
        return None
    return ResolvedSource(
        status.source_digest,
        status.size_bytes,
        status.files or 0,
        status.source_revision,
        status.source_identity,
    )


def content_in_status(version: ModelVersionView) -> KnownContent | None:
    """The content that was adopted earlier."""
    status = version.status
    if status.content_digest is None or status.content_manifest_digest is None:
        return None
    return KnownContent(status.content_digest, status.content_manifest_digest)


def check_in_status(version: ModelVersionView) -> SourceCheck | None:
    """What an earlier check found."""
    told = _find_source_current(version.status.conditions)
    if told is None:
        return None
    is_current = {"True": True, "False": False}.get(told.status)
    message = told.message.removeprefix(_KEEPING).removeprefix(_DROPPING)
    try:
        finding = SourceFinding(is_current, Reason(told.reason), message)
    except ValueError:
        return None
    return SourceCheck(finding, version.status.last_check_time)


def _find_source_current(conditions: Iterable[ConditionStatus]) -> ConditionStatus | None:
    return next((item for item in conditions if item.type == Condition.SOURCE_CURRENT), None)


def make_version_status(facts: VersionFacts, now: datetime) -> ModelVersionStatus:
    """The whole status. Equal facts give an equal status, whatever `now` is."""
    version = facts.version
    source = facts.source if isinstance(facts.source, ResolvedSource) else None
    content = facts.content if source else None
    check = facts.check if source else None
    label_key = None
    if content and _pin_conflict(facts) is None and not _is_dropped(facts):
        label_key = make_node_label_key(
            version.key.namespace, version.key.name, content.content_digest
        )
    return ModelVersionStatus(
        observed_generation=version.generation,
        source_digest=source.source_digest if source else None,
        source_revision=source.revision if source else None,
        source_identity=source.identity if source else None,
        content_digest=content.content_digest if content else None,
        content_manifest_digest=content.manifest_digest if content else None,
        size_bytes=source.size_bytes if source else None,
        size=format_bytes(source.size_bytes) if source else None,
        files=source.files if source else None,
        last_check_time=check.checked_at if check else None,
        nodes=NodeCounts(disk=facts.nodes_on_disk, host=facts.nodes_in_host, gpu=facts.nodes_on_gpu)
        if source
        else None,
        node_label_key=label_key,
        conditions=merge_conditions(
            version.status.conditions, _make_verdicts(facts), generation=version.generation, now=now
        ),
    )


def _make_verdicts(facts: VersionFacts) -> tuple[Verdict, ...]:
    ready, moving, stuck, reason, message = _judge(facts)
    verdicts = tuple(
        Verdict(kind, status, reason, message)
        for kind, status in (
            (Condition.READY, ready),
            (Condition.RECONCILING, moving),
            (Condition.STALLED, stuck),
        )
    )
    if facts.check is None or not isinstance(facts.source, ResolvedSource):
        return verdicts
    finding = facts.check.finding
    message = finding.message
    if finding.is_gone:
        message = f"{_DROPPING if _is_dropped(facts) else _KEEPING}{message}"
    told = Verdict(Condition.SOURCE_CURRENT, finding.is_current, finding.reason, message)
    return (*verdicts, told)


def _judge(facts: VersionFacts) -> tuple[bool, bool, bool, Reason, str]:
    """(ready, moving, stuck, reason, message)."""
    source = facts.source
    if source is None:
        return False, True, False, Reason.RESOLVING, "the source is being listed"
    if isinstance(source, RefusedSource):
        stuck = source.needs_help
        return False, not stuck, stuck, source.reason, source.message
    if conflict := _pin_conflict(facts):
        return False, False, True, Reason.DIGEST_MISMATCH, conflict
    if _is_dropped(facts) and facts.check is not None:
        message = f"{DROPPED}: {facts.check.finding.message}"
        return False, False, True, Reason.SOURCE_GONE, message
    if facts.loss is not None:
        stuck = facts.loss.needs_help
        return False, not stuck, stuck, facts.loss.reason, facts.loss.message
    size = format_bytes(source.size_bytes)
    return True, False, False, Reason.RESOLVED, f"{source.files} files, {size}"


def _is_dropped(facts: VersionFacts) -> bool:
    is_gone = facts.check is not None and facts.check.finding.is_gone
    return is_gone and facts.version.spec.on_source_gone is OnSourceGone.DROP


def _pin_conflict(facts: VersionFacts) -> str | None:
    adopted = facts.content.content_digest if facts.content else None
    return describe_pin_conflict(facts.version.spec.digest, adopted)
