"""When locked memory is given back to the node, and when it may be taken again. Pure.

Locked pages are the one thing that the kernel cannot reclaim. So it is the agent that must act
before the kernel kills somebody: at the low mark it unlocks, a bounded part a round, until the
high mark is reached; it locks nothing more before the node was calm for a while.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from modelcache_api.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

# Shares of the memory in question, in percent. The kubelet evicts pods below 100 MiB available by
# default; on a node of 16 GiB the low mark is eight times that.
LOW_PERCENT: Final = 5
HIGH_PERCENT: Final = 10
# Share of time in which some task waited for memory (PSI, avg10). Single stalls are below 1 %.
STALL_PERCENT: Final = 20.0
CALM_STALL_PERCENT: Final = 5.0
# The effect of one round shows in the figures before the next one.
ROUND_SECONDS: Final = 10.0
# At most this share of the tier goes in one round, but one content at least.
ROUND_PERCENT: Final = 10
# How long all signs must be above the high mark before anything is locked again.
CALM_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class MemorySign:
    """Memory of the node, or what our cgroup may still use that it cannot reclaim, in bytes."""

    what: str
    available_bytes: int
    total_bytes: int

    def below(self, percent: int) -> int:
        """How many bytes are missing to this share of the whole."""
        return max(0, self.total_bytes * percent // 100 - self.available_bytes)


@dataclass(frozen=True, slots=True)
class MemorySigns:
    """All that is looked at. `stall_percent`: PSI's `some avg10`; None where there is no PSI."""

    signs: tuple[MemorySign, ...] = ()
    stall_percent: float | None = None


@dataclass(frozen=True, slots=True)
class HostPressure:
    """`free_bytes`: to be unlocked in this round. `cause`: what began it, empty while all is calm.

    `room_bytes`: what may be locked now without coming near the low mark; None: no bound is known.
    Moments are monotonic seconds.
    """

    cause: str = ""
    free_bytes: int = 0
    room_bytes: int | None = None
    next_round_at: float = 0.0
    calm_since: float | None = None

    @property
    def may_load(self) -> bool:
        """False from the low mark until the node has been calm for long enough."""
        return not self.cause


CALM: Final = HostPressure()


def judge_pressure(
    signs: MemorySigns, before: HostPressure, *, capacity_bytes: int, now: float
) -> HostPressure:
    """The state that follows, with what this round must free."""
    room = _room(signs.signs)
    cause = describe_low(signs)
    if not cause and before.may_load:
        return HostPressure(room_bytes=room)
    if cause or not _is_calm(signs):
        return _next_round(
            replace(before, cause=before.cause or cause, room_bytes=room, calm_since=None),
            signs,
            capacity_bytes=capacity_bytes,
            now=now,
        )
    since = now if before.calm_since is None else before.calm_since
    if now - since >= CALM_SECONDS:
        return HostPressure(room_bytes=room)
    return replace(before, free_bytes=0, room_bytes=room, calm_since=since)


def _next_round(
    pressure: HostPressure, signs: MemorySigns, *, capacity_bytes: int, now: float
) -> HostPressure:
    """Between two rounds nothing goes; a stall alone, without a shortage, costs a full round."""
    if now < pressure.next_round_at:
        return replace(pressure, free_bytes=0)
    most = max(1, capacity_bytes * ROUND_PERCENT // 100)
    short = max((sign.below(HIGH_PERCENT) for sign in signs.signs), default=0)
    is_stalled = signs.stall_percent is not None and signs.stall_percent >= CALM_STALL_PERCENT
    wanted = most if is_stalled else min(short, most)
    return replace(pressure, free_bytes=wanted, next_round_at=now + ROUND_SECONDS)


def describe_low(signs: MemorySigns) -> str:
    """Which sign is at the low mark, or nothing."""
    for sign in signs.signs:
        if sign.below(LOW_PERCENT):
            return (
                f"{sign.what} has {format_bytes(sign.available_bytes)} left of "
                f"{format_bytes(sign.total_bytes)}: less than {LOW_PERCENT}%"
            )
    stall = signs.stall_percent
    if stall is not None and stall >= STALL_PERCENT:
        return f"tasks of the node wait for memory {stall:.0f}% of the time"
    return ""


def _is_calm(signs: MemorySigns) -> bool:
    is_roomy = not any(sign.below(HIGH_PERCENT) for sign in signs.signs)
    return is_roomy and (signs.stall_percent is None or signs.stall_percent < CALM_STALL_PERCENT)


def _room(signs: Sequence[MemorySign]) -> int | None:
    """Locking so much leaves everything at the high mark."""
    rooms = (s.available_bytes - s.total_bytes * HIGH_PERCENT // 100 for s in signs)
    return min((max(0, room) for room in rooms), default=None)
