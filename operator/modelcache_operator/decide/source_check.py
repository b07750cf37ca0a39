"""Whether a resolved version's source is still what it was: what a new look at it means."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from modelcache_api.manifest import SourceFile, SourceManifest
from modelcache_api.names import Reason, Scheme
from modelcache_api.v1alpha1.model_version import ModelVersionSpec
from modelcache_api.v1alpha1.source import Source

# Versions that were resolved together drift apart by up to this share of their interval.
_SPREAD: Final = 0.1
# What waits for an answer is not put off by that much after a restart.
_URGENT_SPREAD_SECONDS: Final = 60.0
_SOON_SECONDS: Final = 15.0
# Only a changed object, Secret or allow-list can help: look now and then.
_NEEDS_HELP_SECONDS: Final = 60.0
_LONGEST_RETRY_SECONDS: Final = 900.0
# A single answer takes no copy away: "gone" must be said twice.
_CONFIRM_SECONDS: Final = 30.0
_CONFIRMATIONS: Final = 2
# A refusal is no answer, whatever it says.
_ANSWERS: Final = frozenset({Reason.SOURCE_GONE, Reason.SOURCE_CHANGED, Reason.RESOLVED})
_COMMIT: Final = re.compile(rf"{Scheme.HUB.prefix}[^@]+@[0-9a-f]{{40}}")
_MAX_PATH_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class SourceFinding:
    """What is known of the source now. `is_current` is None while it cannot be asked."""

    is_current: bool | None
    reason: Reason
    message: str

    @property
    def is_gone(self) -> bool:
        """True if the bytes cannot be fetched from there any more."""
        return self.is_current is False and self.reason is Reason.SOURCE_GONE


@dataclass(frozen=True, slots=True)
class Standing:
    """What the looks so far have come to. `doubts` are answers in a row that it is gone."""

    finding: SourceFinding | None = None
    failures: int = 0
    doubts: int = 0

    @property
    def is_settled(self) -> bool:
        """True if the last look was an answer that needs no confirmation."""
        return not self.failures and self.doubts in (0, _CONFIRMATIONS)


UNCHANGED: Final = SourceFinding(
    is_current=True, reason=Reason.RESOLVED, message="the source is what it was when resolved"
)


def is_pinned(spec: ModelVersionSpec) -> bool:
    """True if the bytes are fixed whatever the source holds: there is nothing to look at again."""
    return spec.digest is not None or names_commit(spec.source.uri)


def names_commit(uri: str) -> bool:
    """True if the URI itself names unchanging bytes."""
    return _COMMIT.fullmatch(uri) is not None


def is_same_transport(one: Source, other: Source) -> bool:
    """True if both lead to the same store in the same way."""
    return one == other.model_copy(update={"recheck_interval": one.recheck_interval})


def judge_listing(
    name: str, resolved: str, kept: SourceManifest | None, found: SourceManifest
) -> SourceFinding:
    """A listing beside the one of the resolution; `kept` is None if that one was lost."""
    if found.digest == resolved:
        return UNCHANGED
    if kept is None:
        return _changed(name, "the source holds other files than when it was resolved")
    before = {file.path: file for file in kept.files}
    after = {file.path: file for file in found.files}
    missing = [path for path in before if path not in after]
    new = [path for path in after if path not in before]
    other = [p for p, file in before.items() if p in after and not _is_same(file, after[p])]
    # What a hub's branch has lost is still there at the commit.
    if missing and not new and not other and kept.revision is None:
        return _gone(f"{_count(missing)} of {len(before)} gone from the source")
    told = [
        f"{_count(paths)} {what}"
        for paths, what in ((other, "changed"), (missing, "gone"), (new, "new"))
        if paths
    ]
    return _changed(name, "in the source: " + ", ".join(told)) if told else UNCHANGED


def judge_refusal(uri: str, reason: Reason, message: str) -> SourceFinding:
    """An attempt that brought no listing.

    Nothing that a hub says takes copies away. It says of a repository that the token may not see
    that there is none, so a revoked token looks like a deletion; and where a branch is gone, what
    was resolved is still read from its commit.
    """
    if not _is_hub(uri) and reason is Reason.SOURCE_NOT_FOUND:
        return _gone(message)
    if _is_hub(uri) and reason is Reason.REVISION_NOT_FOUND:
        told = f"{message}; what was resolved is read from its commit, as long as the hub keeps it"
        return SourceFinding(is_current=False, reason=Reason.SOURCE_CHANGED, message=told)
    if reason in _ANSWERS:
        reason = Reason.SOURCE_ERROR
    return SourceFinding(None, reason, f"the source cannot be checked: {message}")


def conclude(before: Standing, look: SourceFinding) -> Standing:
    """One more look. Trouble takes nothing back that is known; "gone" takes two answers."""
    if look.is_current is None:
        known = before.finding
        keeps = known is not None and (known.is_current is False or known.reason is look.reason)
        return replace(
            before, finding=known if keeps else look, failures=min(before.failures + 1, 30)
        )
    if not look.is_gone:
        return Standing(look)
    was_gone = before.finding is not None and before.finding.is_gone
    doubts = _CONFIRMATIONS if was_gone else min(before.doubts + 1, _CONFIRMATIONS)
    return Standing(look if doubts == _CONFIRMATIONS else before.finding, doubts=doubts)


def spread_of(uid: str) -> float:
    """A number in [0, 1) that is the version's own, in any process."""
    return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4]) / 2**32


def period(interval: float, spread: float) -> float:
    """Seconds between two looks: never less than the interval."""
    return interval * (1.0 + _SPREAD * spread)


def seconds_until_first(
    interval: float, age: float | None, spread: float, *, is_urgent: bool
) -> float:
    """Of a process that begins and finds the last look `age` seconds old, or none at all.

    What has become due meanwhile is spread out, so that a long absence or a clock that was set
    forward does not list everything at once.
    """
    if is_urgent:
        return spread * min(_SPREAD * interval, _URGENT_SPREAD_SECONDS)
    left = 0.0 if age is None else period(interval, spread) - max(age, 0.0)
    return left if left > 0 else spread * _SPREAD * interval


def seconds_owed_at_first(interval: float, age: float, spread: float, unwritten: float) -> float:
    """How long a process that begins finds a look to have been due; negative if it is yet to come.

    Looks that found nothing new are written at most each `unwritten` seconds: of a shorter period,
    nobody knows of those that were made in this time.
    """
    between = period(interval, spread)
    return max(age, 0.0) - between - (unwritten if between < unwritten else 0.0)


def count_missed(interval: float, late: float, spread: float) -> int:
    """Looks that were never made, if the one that makes up for them is `late` seconds late."""
    return max(0, int(late // period(interval, spread)))


def seconds_until_next(
    interval: float, standing: Standing, spread: float, retry_after: float | None, jitter: float
) -> float:
    """After a look. `retry_after` is the source's own wish; None after a failure: it needs help."""
    if standing.failures:
        first = _NEEDS_HELP_SECONDS if retry_after is None else _SOON_SECONDS
        doubled = first * 2.0 ** (standing.failures - 1)
        return max(min(doubled, _LONGEST_RETRY_SECONDS, interval) * jitter, retry_after or 0.0)
    if not standing.is_settled:
        return min(_CONFIRM_SECONDS, interval)
    return period(interval, spread)


def _is_same(before: SourceFile, after: SourceFile) -> bool:
    """By what both listings tell: permission to see versions may come and go."""
    if before.size_bytes != after.size_bytes:
        return False
    if before.version_id is not None and after.version_id is not None:
        return before.version_id == after.version_id
    if before.etag is None and after.etag is None and before.last_modified is not None:
        return before.last_modified == after.last_modified
    return before.etag is not None and before.etag == after.etag


def _is_hub(uri: str) -> bool:
    return uri.startswith(Scheme.HUB.prefix)


def _changed(name: str, what: str) -> SourceFinding:
    cure = f"for the new bytes run `kubectl modelcache new-version {name} --as NAME`"
    message = f"{what}; this version stays as it is: {cure}"
    return SourceFinding(is_current=False, reason=Reason.SOURCE_CHANGED, message=message)


def _gone(what: str) -> SourceFinding:
    message = f"{what}; restore the objects, or move to a new ModelVersion"
    return SourceFinding(is_current=False, reason=Reason.SOURCE_GONE, message=message)


def _count(paths: Sequence[str]) -> str:
    first = min(paths)
    shown = first if len(first) <= _MAX_PATH_SHOWN else f"{first[:_MAX_PATH_SHOWN]}..."
    return f"{len(paths)} files (first {shown!r})" if len(paths) > 1 else f"1 file ({shown!r})"
