"""Which other node is asked for the next part, and how long one that failed is left alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# So long nothing may come from anybody before the operator is asked again who reads the source.
STALE_SECONDS: Final = 15.0
# So long before the source is read whatever the operator says.
HOPELESS_SECONDS: Final = 60.0
# Between two questions to the operator when there is nobody left to read from.
ALONE_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class PeerView:
    """One other node: how far away it is, how busy we keep it, and until when it rests."""

    node_uid: str
    distance: int
    in_use: int = 0
    rests_until: float = 0.0
    is_avoided: bool = False


class Step(StrEnum):
    """What to do for the next part."""

    PEER = "read from that node"
    SOURCE = "read the source"
    RENEW = "ask who reads the source"
    PAUSE = "look again soon"


@dataclass(frozen=True, slots=True)
class Choice:
    """The step, with the node if it is one."""

    step: Step
    node_uid: str | None = None


def choose_peer(
    peers: Iterable[PeerView],
    *,
    now: float,
    jitter: float,
    reads_source: bool,
    progress_at: float,
    asked_at: float,
) -> Choice:
    """The nearest node that is not resting, the least used first; else what follows from it.

    Times are monotonic seconds. `jitter` in [0, 1) decides between equals.
    """
    known = [peer for peer in peers if not peer.is_avoided]
    ready = [peer for peer in known if peer.rests_until <= now]
    if ready:
        best = min((peer.distance, peer.in_use) for peer in ready)
        equals = [peer for peer in ready if (peer.distance, peer.in_use) == best]
        return Choice(Step.PEER, equals[int(jitter * len(equals))].node_uid)
    if reads_source:
        return Choice(Step.SOURCE)
    if now - progress_at >= HOPELESS_SECONDS:
        return Choice(Step.SOURCE)
    patience = STALE_SECONDS if known else ALONE_SECONDS
    if now - max(asked_at, progress_at if known else 0.0) >= patience:
        return Choice(Step.RENEW)
    return Choice(Step.PAUSE)


@dataclass(frozen=True, slots=True)
class Silence:
    """What is known of the node that is waited for: since when it says nothing or nothing new."""

    node_uid: str
    verified_bytes: int | None
    since: float


# A restart of an agent takes less; so does a handshake on a busy node.
_SILENT_SECONDS: Final = 12.0
# A source that gives nothing for so long fails the reader's own transfer sooner.
_STUCK_SECONDS: Final = 90.0


def follow(
    before: Silence | None, node_uid: str, verified_bytes: int | None, now: float
) -> Silence:
    """The silence after one more look. `verified_bytes` None: no answer, or it does not fetch."""
    if before is None or before.node_uid != node_uid or before.verified_bytes != verified_bytes:
        return Silence(node_uid, verified_bytes, now)
    return before


def is_given_up(silence: Silence, now: float) -> bool:
    """True if the node is not waited for any longer."""
    limit = _SILENT_SECONDS if silence.verified_bytes is None else _STUCK_SECONDS
    return now - silence.since >= limit
