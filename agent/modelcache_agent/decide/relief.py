"""What is given up under pressure: unused contents, by the policy, as far as that helps. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modelcache_agent.decide.actions import EntryView
from modelcache_agent.decide.admission import Room, make_room
from modelcache_agent.decide.measures import EvictionCause
from modelcache_api.names import EntryState, Reason

if TYPE_CHECKING:
    from modelcache_agent.decide.watermarks import Pressure

CAUSE = "the file system is above its watermark"


def relieve(room: Room, pressure: Pressure | None) -> Room:
    """Unused contents leave, until the low watermark is reached or nothing unused is left.

    What leaves already and what readers still hold open counts as freed, so that a slow release
    costs no further content. Foreign bytes are nobody's to free: where they are too many, less than
    the excess goes, and then nothing more. Too many files free nothing: a model has only a few.
    """
    if pressure is None:
        return room
    book = room.ledger
    leaving_bytes = book.freed_bytes(room.leaving)
    missing = pressure.excess_bytes - leaving_bytes - book.pending_release_bytes
    missing = min(missing, pressure.round_bytes)
    if missing <= 0:
        return room
    unused = room.leaving.union(held.digest for held in room.unused)
    possible = book.freed_bytes(unused) - leaving_bytes
    made = None
    if possible > 0:
        made = make_room(room, min(missing, possible), why=CAUSE, kind=EvictionCause.PRESSURE)
    return replace(made or room, fell_short=room.fell_short or possible < missing)


def refuse_fetch(uid: str, pressure: Pressure, *, percent: int = 0) -> EntryView:
    """Why nothing is fetched for the entry now; what it has fetched is kept."""
    return EntryView(
        uid,
        EntryState.FAILED,
        Reason.DISK_PRESSURE,
        pressure.message,
        progress_percent=percent,
    )


def tell_given_up(uid: str, pressure: Pressure) -> EntryView:
    """What is true of a copy that was evicted, while the pressure lasts."""
    message = (
        f"given up: it comes back when the pressure is over and a pod asks; {pressure.message}"
    )
    return EntryView(uid, EntryState.EVICTED, Reason.DISK_PRESSURE, message)
