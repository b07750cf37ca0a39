"""One entry at a time: what is true of it, and what is done about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.actions import Action, EntryView, Fetch, Propose, Repair, Verify
from modelcache_agent.decide.admission import Room, admit, describe_never_fits
from modelcache_agent.decide.relief import refuse_fetch, tell_given_up
from modelcache_agent.decide.scrub import Stage, describe_damage, is_out_of_place, missing_bytes
from modelcache_agent.decide.turns import is_demanded
from modelcache_api.limits import MAX_LABELS_PER_NODE
from modelcache_api.names import EntryOrigin, EntryState, Reason
from modelcache_api.quantities import format_bytes

if TYPE_CHECKING:
    from modelcache_agent.decide.matching import Match
    from modelcache_agent.decide.setbacks import Setback
    from modelcache_agent.decide.world import Flight, Held, World
    from modelcache_api.v1alpha1.cache_node import EntrySpec

# Foreign bytes come and go without an event; how long a newcomer without room waits for them.
SPACE_RECHECK_SECONDS: Final = 30.0


@dataclass(slots=True)
class Draft:
    """What one run of the planner has gathered so far.

    `yielding` are transfers that may make way, the next one at the end; `paused` those that do.
    `in_repair` are damaged files that some entry fetches already.
    """

    room: Room
    free_slots: int
    yielding: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    in_repair: set[str] = field(default_factory=set)
    actions: list[Action] = field(default_factory=list)
    rechecks: list[float] = field(default_factory=list)


def consider(
    draft: Draft, world: World, entry: EntrySpec, match: Match | None, flight: Flight | None
) -> EntryView:
    """The entry's state. What is to be done about it is added to the draft."""
    setback = find_setback(world, entry)
    if match is not None and match.held.damage:
        return _view_damaged(draft, world, entry, match.held, flight)
    if match is not None:
        return _view_held(draft, world, entry, match, setback)
    if flight is not None:
        return _view_fetched(draft, world, entry, flight)
    if is_given_up(world, entry):
        return _view_given_up(world, entry)
    return _view_newcomer(draft, world, entry, setback)


def _view_given_up(world: World, entry: EntrySpec) -> EntryView:
    if entry.origin is EntryOrigin.HOLD:
        message = "it has left the spec, and is not fetched again"
    elif world.pressure is not None:
        return tell_given_up(entry.uid, world.pressure)
    else:
        message = "evicted; it is not fetched again until a pod asks for it"
    return EntryView(entry.uid, EntryState.EVICTED, Reason.EVICTED, message)


def is_given_up(world: World, entry: EntrySpec) -> bool:
    """True if the version was evicted and no pod asks for it again, or if it is only held.

    What is pinned comes back by itself.
    """
    if entry.origin is EntryOrigin.HOLD:
        return True
    if entry.pinned:
        return False
    return entry.uid in world.evicted and entry.uid not in world.attached


def find_setback(world: World, entry: EntrySpec) -> Setback | None:
    """The setback that still concerns this entry, if there is one."""
    setback = (world.setbacks or {}).get(entry.uid)
    return setback if setback is not None and setback.concerns(entry) else None


def refine(
    view: EntryView,
    entry: EntrySpec,
    match: Match | None,
    *,
    condemned: frozenset[str],
    asked: frozenset[str] = frozenset(),
    labels: frozenset[str],
) -> EntryView:
    """The view once victims and labels are known; `asked` are victims that somebody asked to go.

    What is condemned is promised to nobody any more. As long as its bytes are here the view has
    their digest: it may still stay.
    """
    if match is None:
        return view
    if match.held.digest in condemned:
        why = "somebody asked for it" if match.held.digest in asked else "its room is needed"
        return EntryView(
            view.uid, EntryState.EVICTED, Reason.EVICTED, f"gives way: {why}", match.held.digest
        )
    is_labelled = entry.label_key is None or entry.label_key in labels
    if view.state is EntryState.CACHED and entry.content_digest is not None and not is_labelled:
        message = f"verified, but not labelled: a node carries {MAX_LABELS_PER_NODE} labels at most"
        return EntryView(
            view.uid, view.state, Reason.TOO_MANY_MODELS, message, view.digest, progress_percent=100
        )
    return view


def _view_held(
    draft: Draft, world: World, entry: EntrySpec, match: Match, setback: Setback | None
) -> EntryView:
    held = match.held
    if not held.is_verified:
        draft.actions.append(Verify(held.digest))
        message = "its files do not look as recorded, so they are hashed again"
        return EntryView(entry.uid, EntryState.VERIFYING, Reason.VERIFYING, message)
    if match.is_adopted:
        return EntryView(
            entry.uid, EntryState.CACHED, Reason.CACHED, "", held.digest, progress_percent=100
        )
    if setback is not None and setback.retry_at > world.now:
        draft.rechecks.append(setback.retry_at)
        is_refused = setback.reason is Reason.DIGEST_MISMATCH
        state = EntryState.FAILED if is_refused else EntryState.VERIFYING
        return EntryView(entry.uid, state, setback.reason, setback.message, progress_percent=100)
    draft.actions.append(Propose(entry, held.digest))
    message = "all bytes are here; the operator is asked to adopt their digest"
    return EntryView(
        entry.uid, EntryState.VERIFYING, Reason.VERIFYING, message, progress_percent=100
    )


def _view_fetched(draft: Draft, world: World, entry: EntrySpec, flight: Flight) -> EntryView:
    """Beyond a quota it stops as under pressure: a quota that was lowered holds at once."""
    if not entry.over_quota or flight.state is not EntryState.DOWNLOADING:
        return _view_running(draft, world, flight)
    draft.paused.append(flight.uid)
    percent = _view_flight(flight).progress_percent
    return replace(_refuse_by_quota(entry), progress_percent=percent)


def _view_running(draft: Draft, world: World, flight: Flight) -> EntryView:
    """Under pressure a transfer stops, unless all its bytes are here; what it has is kept."""
    view = _view_flight(flight)
    if world.pressure is None or flight.state is not EntryState.DOWNLOADING:
        return view
    draft.paused.append(flight.uid)
    return refuse_fetch(flight.uid, world.pressure, percent=view.progress_percent)


def _view_flight(flight: Flight) -> EntryView:
    """Progress moves in tenths, so that the status is not rewritten for each part."""
    if flight.state is EntryState.PENDING and flight.queued:
        return EntryView(flight.uid, flight.state, Reason.QUEUED, flight.queued)
    if flight.state is EntryState.PENDING:
        message = "another node reads the source; this one reads from it afterwards"
        return EntryView(flight.uid, flight.state, Reason.WAITING, message)
    tenths = 10 if flight.total_bytes == 0 else 10 * flight.verified_bytes // flight.total_bytes
    is_verifying = flight.state is EntryState.VERIFYING
    reason = Reason.VERIFYING if is_verifying else Reason.DOWNLOADING
    return EntryView(flight.uid, flight.state, reason, progress_percent=10 * min(10, tenths))


def _view_newcomer(
    draft: Draft, world: World, entry: EntrySpec, setback: Setback | None
) -> EntryView:
    if entry.uid in draft.room.ledger.reservations:
        message = "waits until the transfer of its former source has ended"
        return EntryView(entry.uid, EntryState.PENDING, Reason.WAITING, message)
    if entry.over_quota:
        return _refuse_by_quota(entry)
    never = describe_never_fits(entry, world.ledger)
    if never is not None:
        return EntryView(entry.uid, EntryState.FAILED, Reason.NEVER_FITS, never)
    if setback is not None and setback.retry_at > world.now:
        draft.rechecks.append(setback.retry_at)
        state = EntryState.FAILED if setback.is_failure else EntryState.PENDING
        return EntryView(entry.uid, state, setback.reason, setback.message)
    return _start_or_wait(draft, world, entry, Fetch(entry), entry.size_bytes)


def _refuse_by_quota(entry: EntrySpec) -> EntryView:
    message = (
        f"{format_bytes(entry.size_bytes)} are not fetched: its namespace uses more than it is "
        "granted; `kubectl get modelcachequotas` tells the figures"
    )
    return EntryView(entry.uid, EntryState.FAILED, Reason.QUOTA_EXCEEDED, message)


def _view_damaged(
    draft: Draft, world: World, entry: EntrySpec, held: Held, flight: Flight | None
) -> EntryView:
    """Damage is the reason until it is repaired; the message says how far that is."""
    state, message, percent = _repair(draft, world, entry, held, flight)
    told = f"{describe_damage(held.damage)}; {message}"
    return EntryView(entry.uid, state, Reason.DAMAGED, told, progress_percent=percent)


def _repair(
    draft: Draft, world: World, entry: EntrySpec, held: Held, flight: Flight | None
) -> tuple[EntryState, str, int]:
    if any(damage.stage is Stage.FOUND for damage in held.damage):
        return EntryState.VERIFYING, "the whole file is read again", 0
    if not is_out_of_place(held):
        return EntryState.PENDING, "it goes to quarantine once no label promises it", 0
    if flight is not None:
        view = _view_running(draft, world, flight)
        return view.state, view.message or "it is fetched again", view.progress_percent
    return *_begin_repair(draft, world, entry, held), 0


def _begin_repair(
    draft: Draft, world: World, entry: EntrySpec, held: Held
) -> tuple[EntryState, str]:
    blobs = {damage.blob for damage in held.damage}
    if entry.origin is EntryOrigin.HOLD:
        return EntryState.FAILED, "it has left the spec, and is not fetched again"
    setback, repair_at = find_setback(world, entry), max(d.repair_at for d in held.damage)
    if not draft.in_repair.isdisjoint(blobs):
        return EntryState.PENDING, "another version that has the file fetches it again"
    if setback is not None and setback.retry_at > world.now:
        draft.rechecks.append(setback.retry_at)
        message = f"it cannot be fetched again: {setback.reason}: {setback.message}"
        return EntryState.FAILED if setback.is_failure else EntryState.PENDING, message
    if repair_at > world.now:
        draft.rechecks.append(repair_at)
        return EntryState.FAILED, "it was fetched again before and is damaged again: check the disk"
    size = missing_bytes(held)
    begun = len(draft.actions)
    view = _start_or_wait(draft, world, entry, Repair(entry, size), size)
    if len(draft.actions) > begun:
        draft.in_repair |= blobs
    return view.state, view.message or "it is fetched again"


def _start_or_wait(
    draft: Draft, world: World, entry: EntrySpec, action: Fetch | Repair, size_bytes: int
) -> EntryView:
    if world.pressure is not None:
        draft.rechecks.append(world.now + SPACE_RECHECK_SECONDS)
        return refuse_fetch(entry.uid, world.pressure)
    may_displace = bool(draft.yielding) and is_demanded(world, entry)
    if draft.free_slots <= 0 and not may_displace:
        message = f"waits for its turn: {world.max_models} models are fetched at once"
        return EntryView(entry.uid, EntryState.PENDING, Reason.WAITING, message)
    draft.room, refusal = admit(draft.room, entry, size_bytes)
    if refusal is not None:
        draft.rechecks.append(world.now + SPACE_RECHECK_SECONDS)
        return refusal
    if draft.free_slots <= 0:
        draft.paused.append(draft.yielding.pop())
        message = "a pod waits for it: the transfer of a placed model is paused to make way"
        return EntryView(entry.uid, EntryState.PENDING, Reason.WAITING, message)
    draft.free_slots -= 1
    draft.actions.append(action)
    return EntryView(entry.uid, EntryState.DOWNLOADING, Reason.DOWNLOADING)
