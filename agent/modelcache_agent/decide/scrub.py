"""Which published file is read again next, and what follows from damage that is found. Pure.

A file that differs from its record is damage in three stages: a piece was found, the whole file
was read and judged, the file lies in quarantine. The stages order what is done: labels go with the
first, the file leaves its place when the Node is known to carry none, and only then it is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.actions import Isolate, Scrub
from modelcache_agent.decide.transfer_plan import count_pieces
from modelcache_api.names import EntryState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modelcache_agent.decide.ledger import Blob
    from modelcache_agent.decide.world import Held, World

# One errand reads so many files at most, and then asks again what is due.
MOST_FILES: Final = 64
# A file that was damaged again after a repair: the disk may be dying, and each repair leaves one
# more file in quarantine.
_FIRST_PAUSE_SECONDS: Final = 600.0
_LONGEST_PAUSE_SECONDS: Final = 24 * 3600.0
_MOST_DOUBLINGS: Final = 16
_MOST_PIECES_TOLD: Final = 5


class Stage(StrEnum):
    """How far damage has been dealt with. Also the words in the store's book."""

    FOUND = "Found"
    CONFIRMED = "Confirmed"
    QUARANTINED = "Quarantined"


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged file of the store.

    `inode` and `mtime_ns` say which bytes were judged, `pieces` which of them are wrong as far as
    is known. `repairs` counts how often this file was fetched again before and was damaged again;
    `since` is when it was found (monotonic seconds).
    """

    blob: str
    path: str
    size_bytes: int
    inode: int
    mtime_ns: int
    pieces: tuple[int, ...]
    stage: Stage = Stage.FOUND
    repairs: int = 0
    since: float = 0.0

    @property
    def repair_at(self) -> float:
        """When it may be fetched again (monotonic seconds): at once, and ever later after that."""
        if self.repairs == 0:
            return self.since
        doublings = min(self.repairs - 1, _MOST_DOUBLINGS)
        return self.since + min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0**doublings)


@dataclass(frozen=True, slots=True)
class Checkup:
    """A published file and how long ago all of its bytes were last verified.

    `was_repaired`: it replaced a damaged one and was not read back from the disk since.
    """

    blob: str
    age_seconds: float
    was_repaired: bool = False


@dataclass(frozen=True, slots=True)
class ScrubChoice:
    """The files to read now, the first one first; or when the next is due (monotonic seconds)."""

    action: Scrub | None = None
    recheck_at: float | None = None


def age_of(checked_at: float, now: float) -> tuple[float, bool]:
    """The age of a persisted wall time (Unix seconds), and whether it lies in the future.

    A time in the future counts as now: a clock that was set back delays a check by one interval.
    """
    return max(0.0, now - checked_at), checked_at > now


def choose_scrub(world: World) -> ScrubChoice:
    """What is suspected comes first, even while models are fetched: its labels are off.

    All else waits for transfers: they need the disk more. The file that was checked longest ago is
    next, so that a restart goes on where the last process was.
    """
    suspected = sorted({d.blob for held in world.held for d in held.damage if _is_open(d)})
    if suspected:
        return ScrubChoice(Scrub(tuple(suspected[:MOST_FILES])))
    if any(flight.state is not EntryState.PENDING for flight in world.flights):
        return ScrubChoice()
    sound = {blob.sha256 for held in world.held if held.is_verified for blob in held.blobs}
    candidates = [checkup for checkup in world.checkups if checkup.blob in sound]
    due = [checkup for checkup in candidates if _is_due(checkup, world.scrub_interval)]
    if due:
        due.sort(key=lambda c: (not c.was_repaired, -c.age_seconds, c.blob))
        return ScrubChoice(Scrub(tuple(checkup.blob for checkup in due[:MOST_FILES])))
    if world.scrub_interval is None or not candidates:
        return ScrubChoice()
    oldest = max(checkup.age_seconds for checkup in candidates)
    return ScrubChoice(recheck_at=world.now + world.scrub_interval - oldest)


def list_isolations(held: Iterable[Held]) -> tuple[Isolate, ...]:
    """Files that leave their place, once no label promises them any more."""
    confirmed = {d.blob for h in held for d in h.damage if d.stage is Stage.CONFIRMED}
    return tuple(Isolate(blob) for blob in sorted(confirmed))


def is_out_of_place(held: Held) -> bool:
    """True if the damage of the content is known in full and all of it lies in quarantine."""
    return bool(held.damage) and all(d.stage is Stage.QUARANTINED for d in held.damage)


def list_in_place(held: Held) -> frozenset[Blob]:
    """The content's files that are not in quarantine."""
    gone = {d.blob for d in held.damage if d.stage is Stage.QUARANTINED}
    return frozenset(blob for blob in held.blobs if blob.sha256 not in gone)


def missing_bytes(held: Held) -> int:
    """Bytes of the files that lie in quarantine."""
    return sum(d.size_bytes for d in held.damage if d.stage is Stage.QUARANTINED)


def describe_damage(damage: Sequence[Damage]) -> str:
    """Which files, and which pieces of them."""
    first = min(damage, key=lambda d: d.path)
    total = count_pieces(first.size_bytes)
    if first.pieces:
        named = ", ".join(str(piece) for piece in first.pieces[:_MOST_PIECES_TOLD])
        more = ", ..." if len(first.pieces) > _MOST_PIECES_TOLD else ""
        told = f"{len(first.pieces)} of {total} pieces of {first.path!a} ({named}{more})"
    else:
        told = f"{first.path!a}"
    others = f" and {len(damage) - 1} more files" if len(damage) > 1 else ""
    return f"damaged on this node's disk: {told}{others}"


def _is_open(damage: Damage) -> bool:
    return damage.stage is Stage.FOUND


def _is_due(checkup: Checkup, interval: float | None) -> bool:
    is_old = interval is not None and checkup.age_seconds >= interval
    return is_old or checkup.was_repaired
