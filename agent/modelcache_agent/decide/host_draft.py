"""The host tier's part of a plan while it is being made. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.actions import Victim
from modelcache_agent.decide.history import NOT_MEASURED
from modelcache_api.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modelcache_agent.decide.actions import Promote
    from modelcache_agent.decide.host_world import HostView
    from modelcache_agent.decide.ledger import Blob, Ledger
    from modelcache_agent.decide.measures import EvictionCause
    from modelcache_agent.decide.policies import EvictionPolicy, Ranked
    from modelcache_agent.decide.world import Held, World
    from modelcache_api.names import Reason

# Readers let pages go, and others memory, without an event; how long a content waits for them.
ROOM_RECHECK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Told:
    """Why a content is not in host memory. `holds_back`: no pod is shown it before it is."""

    reason: Reason
    message: str
    holds_back: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """A content that some entry wants in host memory; `uid` is that of the first.

    `held` is as `price_from_disk` makes it.
    """

    held: Held
    uid: str
    standing: int = 0
    is_placed: bool = False
    is_protected: bool = False
    is_waited_for: bool = False


@dataclass(slots=True)
class Draft:
    """Mutable while one plan is made. `victims` explains those that leave for others' sake."""

    world: World
    host: HostView
    policy: EvictionPolicy
    wanted: Mapping[str, Wanted]
    order: Mapping[str, int]
    """By digest, the policy's order of all that is wanted: the least goes first."""
    ledger: Ledger
    room_bytes: int | None
    leaving: dict[str, str]
    """Why each of these is let go."""
    condemned: set[str] = field(default_factory=set)
    victims: dict[str, Victim] = field(default_factory=dict)
    promotions: list[Promote] = field(default_factory=list)
    told: dict[str, Told] = field(default_factory=dict)
    rechecks: list[float] = field(default_factory=list)
    fell_short: bool = False


def price_from_disk(held: Held) -> Held:
    """For tiers above the disk, which read it from there: each byte costs alike for all."""
    return replace(held, history=replace(held.history, load=NOT_MEASURED))


def condemn(draft: Draft, ranked: Ranked, cause: str, kind: EvictionCause) -> None:
    """A locked content is let go, with its policy's score, for this cause."""
    digest = ranked.held.digest
    victim = Victim(digest, draft.policy.name, ranked.score, ranked.why, cause, kind)
    draft.victims[digest] = victim
    draft.leaving[digest] = str(victim)
    draft.condemned.add(digest)


def sum_sizes(blobs: Iterable[Blob]) -> int:
    """Bytes of all."""
    return sum(blob.size_bytes for blob in blobs)


def describe_amount(size_bytes: int) -> str:
    """For people, and exactly."""
    return f"{format_bytes(size_bytes)} ({size_bytes} bytes)"
