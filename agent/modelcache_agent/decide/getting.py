"""What `modelcache-agent get` does with what it holds and with what goes wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from modelcache_agent.decide.world import Held
from modelcache_api.names import Reason
from modelcache_api.pod_wire import PodVersion

# Asking again changes nothing; what may have been damaged on its way was fetched twice already.
_FINAL: Final = frozenset(
    {
        Reason.GRANT_REFUSED,
        Reason.UNSAFE_KEY,
        Reason.NOT_A_MODEL,
        Reason.DIGEST_MISMATCH,
        Reason.INSUFFICIENT_SPACE,
    }
)
_SEE_VERSION: Final = "see `kubectl describe modelversion`"
_CURES: Final = {
    Reason.GRANT_REFUSED: "ask from a pod of the ModelVersion's own namespace, with a projected "
    "token (audience modelcache-grant), and see that the chart's grants.forPods is on",
    Reason.MODEL_VERSION_NOT_FOUND: "create it, or correct the name",
    Reason.MODEL_CACHE_NOT_FOUND: "create it, or correct the name",
    Reason.MODEL_VERSION_NOT_READY: _SEE_VERSION,
    Reason.RESOLVING: _SEE_VERSION,
    Reason.OPERATOR_UNREACHABLE: "see that the chart's grants.forPods is on, that NetworkPolicies "
    "let this pod reach the operator, and that the CA file is the operator's of today",
    Reason.INSUFFICIENT_SPACE: "give the target's volume more room",
    Reason.STORE_ERROR: "the target must be a writable file system with hard links",
    Reason.DIGEST_MISMATCH: "the source's bytes are not the version's: make a new ModelVersion, or "
    "correct spec.digest",
    Reason.NOT_A_MODEL: "upload the weights themselves to the source",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to go on without any progress, in seconds."""

    seconds: float

    def pause(self, reason: Reason, retry_after: float | None, idle_seconds: float) -> float | None:
        """Seconds until the next try after this failure; None: it is the last one."""
        if reason in _FINAL or retry_after is None or idle_seconds >= self.seconds:
            return None
        return min(retry_after, self.seconds - idle_seconds)


def find_held(held: Iterable[Held], version: PodVersion) -> Held | None:
    """The held content that is the version's, or None.

    Its digest decides where one is known; else the source that the bytes were read from.
    """
    for content in held:
        if version.content_digest is not None:
            if content.digest == version.content_digest:
                return content
        elif any(
            (origin.uid, origin.source_digest) == (version.uid, version.source_digest)
            for origin in content.origins
        ):
            return content
    return None


def describe_lack_of_room(needed_bytes: int, there_bytes: int, free_bytes: int) -> str | None:
    """Why a version cannot fit beside what is there of it already, with the numbers; or None."""
    missing = needed_bytes - there_bytes
    if missing <= free_bytes:
        return None
    return f"{missing} more bytes are needed, {free_bytes} are free on the target's file system"


def name_cure(reason: Reason) -> str:
    """What to do about it, in a few words."""
    return _CURES.get(reason, f"see {reason} in docs/reasons.md")
