"""`why`: one line that says how an object stands, the cause, and the cure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from modelcache_api.cures import NOTHING, find_cure
from modelcache_api.names import Condition, Reason
from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_cli.errors import CliError
from modelcache_kube import (
    CACHE_NODES,
    MODEL_CACHE_QUOTAS,
    MODEL_CACHES,
    MODEL_VERSIONS,
    PODS,
    KubeClient,
    Resource,
)

Object = Mapping[str, Any]


class TargetKind(StrEnum):
    """What can be asked about."""

    CACHE = "modelcache"
    VERSION = "modelversion"
    QUOTA = "modelcachequota"
    NODE = "node"
    POD = "pod"


_SPELLINGS: Final[Mapping[str, TargetKind]] = {
    **dict.fromkeys(("modelcache", "modelcaches", "mcache"), TargetKind.CACHE),
    **dict.fromkeys(("modelversion", "modelversions", "mver"), TargetKind.VERSION),
    **dict.fromkeys(("modelcachequota", "modelcachequotas", "mquota"), TargetKind.QUOTA),
    **dict.fromkeys(("node", "nodes", "cachenode", "cachenodes", "cnode"), TargetKind.NODE),
    **dict.fromkeys(("pod", "pods", "po"), TargetKind.POD),
}
_MOST_WORDS: Final = 2
# The command's own word: the operator tells nothing more of what is being deleted.
DELETING: Final = "Deleting"
# Of nodes, the gravest first.
_WARNINGS: Final = (
    Condition.DISK_PRESSURE,
    Condition.PEER_SUSPECTED,
    Condition.HOST_TIER_UNFIT,
)
# Of ModelCaches and ModelVersions, what should be true where it is told of.
_WISHES: Final = (
    Condition.TRAFFIC_ROUTED,
    Condition.ROLLOUT_PROGRESSING,
    Condition.SOURCE_CURRENT,
)
RESOURCES: Final[Mapping[TargetKind, Resource]] = {
    TargetKind.CACHE: MODEL_CACHES,
    TargetKind.VERSION: MODEL_VERSIONS,
    TargetKind.QUOTA: MODEL_CACHE_QUOTAS,
    TargetKind.NODE: CACHE_NODES,
    TargetKind.POD: PODS,
}


@dataclass(frozen=True, slots=True)
class Target:
    """The object that is asked about. Nodes have no namespace."""

    kind: TargetKind
    name: str
    namespace: str | None

    def __str__(self) -> str:
        where = "" if self.namespace is None else f"{self.namespace}/"
        return f"{self.kind} {where}{self.name}"


@dataclass(frozen=True, slots=True)
class Finding:
    """How an object stands: one reason, one sentence. `cure` None: the reason's own.

    `is_ready` is False where the object's Ready condition says so, or is not there yet.
    """

    reason: str
    message: str
    cure: str | None = None
    is_ready: bool = True

    def tell(self, target: Target) -> str:
        """The line for people."""
        said = f": {self.message}" if self.message and self.message != self.reason else ""
        cure = self.find_cure()
        return f"{target}: {self.reason}{said}{f'; cure: {cure}' if cure else ''}"

    def find_cure(self) -> str:
        """What to do; empty if nothing."""
        cure = find_cure(self.reason, self.message) if self.cure is None else self.cure
        return "" if cure == NOTHING else cure


def parse_target(words: Sequence[str], namespace: str) -> Target:
    """What NAME, TYPE/NAME or TYPE NAME means.

    Raises:
        CliError: the type is none of ours, or there are more words.
    """
    if len(words) > _MOST_WORDS:
        raise CliError("ask about one object: NAME, TYPE/NAME or TYPE NAME")
    parts = words[0].split("/", 1) if len(words) == 1 else list(words)
    spelling, name = ("modelcache", parts[0]) if len(parts) == 1 else (parts[0], parts[1])
    kind = _SPELLINGS.get(spelling.lower())
    if kind is None:
        known = ", ".join(TargetKind)
        raise CliError(f"{spelling!r} is not one of {known}: write for example node/gpu-1")
    return Target(kind, name, None if kind is TargetKind.NODE else namespace)


async def read_target(kube: KubeClient, target: Target) -> Object:
    """The object.

    Raises:
        CliError: it does not exist.
    """
    found = await kube.get(RESOURCES[target.kind], target.name, target.namespace)
    if found is None:
        raise CliError(f"there is no {target}: {_describe_absence(target)}")
    return found


def _describe_absence(target: Target) -> str:
    if target.kind is TargetKind.NODE:
        return "no agent has reported from a node of that name; check the agents' DaemonSet"
    plural = RESOURCES[target.kind].plural
    return f"`kubectl get {plural} --all-namespaces` lists them"


def judge_object(kind: TargetKind, found: Object) -> Finding:
    """What the conditions say: the first that is not as it should be, else Ready.

    They say nothing of a spec that the operator has not looked at yet, nor of a deletion.
    """
    metadata = found.get("metadata") or {}
    if metadata.get("deletionTimestamp"):
        return _judge_deletion(metadata.get("finalizers") or ())
    status = found.get("status") or {}
    conditions = [ConditionStatus.model_validate(raw) for raw in status.get("conditions") or ()]
    ready = _find(conditions, Condition.READY)
    if ready is None or _is_outdated(kind, found):
        what = "it" if ready is None else "the present spec"
        message = f"the operator has not looked at {what} yet"
        return Finding(Reason.RESOLVING, message, "check that the operator runs", is_ready=False)
    if ready.status == "True":
        for warning in _WARNINGS:
            if (told := _find(conditions, warning)) is not None and told.status == "True":
                return Finding(told.reason, told.message)
        for wish in _WISHES:
            if (told := _find(conditions, wish)) is not None and told.status != "True":
                return Finding(told.reason, told.message)
        if kind is TargetKind.NODE and ready.reason == Reason.AGENT_ALIVE:
            return judge_entries(status.get("entries") or ()) or Finding(ready.reason, "")
    return Finding(ready.reason, ready.message, is_ready=ready.status == "True")


def _judge_deletion(finalizers: Sequence[str]) -> Finding:
    if not finalizers:
        return Finding(DELETING, "it goes by itself", NOTHING, is_ready=False)
    return Finding(
        DELETING,
        f"it waits for finalizers: {', '.join(finalizers)}",
        "wait for whoever set them, or see why that does not take them away",
        is_ready=False,
    )


def _is_outdated(kind: TargetKind, found: Object) -> bool:
    """True if the conditions are about a former spec. Of nodes the operator tells no generation."""
    if kind is TargetKind.NODE:
        return False
    generation = (found.get("metadata") or {}).get("generation")
    observed = (found.get("status") or {}).get("observedGeneration")
    return generation is not None and bool(observed != generation)


def judge_entries(entries: Iterable[Object]) -> Finding | None:
    """The first entry of a node that failed, and how many more; None if none did."""
    failed = [entry for entry in entries if entry.get("state") == "Failed"]
    if not failed:
        return None
    first, more = failed[0], len(failed) - 1
    rest = f" ({more} more failed)" if more else ""
    uid, told = first.get("uid", ""), first.get("message") or ""
    reason = first.get("reason") or Reason.TRANSFER_FAILED
    return Finding(reason, f"ModelVersion uid {uid}: {told}{rest}")


def _find(conditions: Iterable[ConditionStatus], kind: Condition) -> ConditionStatus | None:
    return next((item for item in conditions if item.type == kind), None)
