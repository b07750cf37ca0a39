"""Where the next part of a file is read from: another node, or the source.

Only pieces whose blake3 is known beforehand are ever asked of another node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from modelcache_agent.decide.transfer_plan import StallPolicy
from modelcache_api.names import Reason

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from modelcache_agent.fetch.refusal import Refusal

# The store is one request away: another node gets a fraction of the store's patience.
PEER_STALL: Final = StallPolicy(window_seconds=5.0, min_bytes_per_second=256 * 1024)
PEER_CONNECT_SECONDS: Final = 2.0
# Whatever else goes wrong while a part is read from another node is that node's fault.
OWN_FAULTS: Final = frozenset({Reason.STORE_ERROR, Reason.INSUFFICIENT_SPACE})


class Answer(StrEnum):
    """What came of asking another node."""

    SERVED = "served"
    MISSING = "missing"
    BUSY = "busy"
    SLOW = "slow"
    GONE = "gone"
    REFUSED = "refused"
    BROKEN = "broken"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class PeerRoute:
    """One node to ask for a part. `context` shows our certificate; `server_name` is in theirs."""

    node_uid: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    server_name: str
    context: ssl.SSLContext = field(repr=False)


@dataclass(frozen=True, slots=True)
class SourceRoute:
    """Read the source itself."""


@dataclass(frozen=True, slots=True)
class NoRoute:
    """Nobody has it now: look again after a pause, and before that ask for a new grant if told."""

    pause_seconds: float
    must_renew: bool = False


Route = PeerRoute | SourceRoute | NoRoute


class Routes(Protocol):
    """Chooses; called from the stream threads."""

    def choose(self, uid: str, path: str) -> Route:
        """From where to read next."""
        ...

    def report(self, uid: str, route: PeerRoute, answer: Answer, message: str = "") -> None:
        """What came of it."""
        ...

    def allow_source(self, uid: str) -> None:
        """Nobody can be asked who else should read the source: this node does."""
        ...


_BY_STATUS: Final = {
    404: Answer.MISSING,
    401: Answer.REFUSED,
    403: Answer.REFUSED,
    503: Answer.BUSY,
}
_SUCCESSES: Final = (200, 206)


def judge_answer(refusal: Refusal, status: int | None) -> Answer:
    """What a failure says of the node. `status` None: it did not answer. Pure."""
    if refusal.reason is Reason.DIGEST_MISMATCH:
        return Answer.WRONG
    if refusal.reason is Reason.TRANSFER_STALLED:
        return Answer.SLOW
    if status is None:
        return Answer.GONE
    if status in _SUCCESSES:
        return Answer.BROKEN
    return _BY_STATUS.get(status, Answer.BROKEN)
