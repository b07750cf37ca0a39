"""Which contents are locked in host memory, and which are let go. Pure.

The host tier never fails an entry: what does not fit stays on the disk and says why. A newcomer
displaces only what its policy ranks below it, so two models that fit one at a time do not swap: the
one that goes cannot push out the one that came, until it is used more itself. Nor does it come if
the policy refuses it: all that would give way for it may be worth more together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.actions import Action, Demote, EntryView, Fetch, Promote, Victim
from modelcache_agent.decide.host_draft import (
    ROOM_RECHECK_SECONDS,
    Draft,
    Told,
    Wanted,
    condemn,
    describe_amount,
    price_from_disk,
    sum_sizes,
)
from modelcache_agent.decide.host_pressure import HIGH_PERCENT
from modelcache_agent.decide.host_room import make_room
from modelcache_agent.decide.matching import find_standing
from modelcache_agent.decide.measures import EvictionCause
from modelcache_api.names import EntryOrigin, EntryState, Reason, Tier

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modelcache_agent.decide.host_world import HostView
    from modelcache_agent.decide.ledger import Ledger
    from modelcache_agent.decide.matching import Match
    from modelcache_agent.decide.policies import EvictionPolicy, Ranked
    from modelcache_agent.decide.world import Held, World
    from modelcache_api.v1alpha1.cache_node import EntrySpec

# While the node is low on memory it is looked at this often.
PRESSURE_RECHECK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class HostPlan:
    """`marked` are the label keys that may say `host`; `told` is by digest.

    `victims` explains who is let go for the sake of others. `ledger` and `room_bytes` are what is
    left for transfers that write through memory; no ledger: there is no tier.
    """

    demotions: tuple[Demote, ...] = ()
    promotions: tuple[Promote, ...] = ()
    marked: frozenset[str] = frozenset()
    condemned: frozenset[str] = frozenset()
    victims: tuple[Victim, ...] = ()
    told: Mapping[str, Told] = field(default_factory=dict)
    staying: frozenset[str] = frozenset()
    fell_short: bool = False
    rechecks: tuple[float, ...] = ()
    ledger: Ledger | None = None
    room_bytes: int | None = None


def plan_host(
    world: World,
    matches: Mapping[str, Match],
    policy: EvictionPolicy,
    *,
    labels: frozenset[str],
    condemned: frozenset[str],
) -> HostPlan:
    """The host tier's part of a plan. `condemned` leave the disk, `labels` are what stays."""
    host, wanted = world.host, _find_wanted(world, matches, condemned)
    if host is None or host.unfit is not None:
        return HostPlan(told=dict.fromkeys(wanted, _tell_no_tier(host)))
    draft = Draft(
        world=world,
        host=host,
        policy=policy,
        wanted=wanted,
        order=_find_order(wanted, policy),
        ledger=host.ledger,
        room_bytes=host.pressure.room_bytes,
        leaving=dict.fromkeys(
            (host.locked | host.loading) - wanted.keys(), "no entry wants it in host memory"
        ),
    )
    _yield_to_pressure(draft)
    for digest in _in_turn(draft):
        if digest not in host.locked and digest not in draft.leaving:
            _consider(draft, wanted[digest].held)
    return _finish(draft, matches, labels)


def apply_host(view: EntryView, entry: EntrySpec, match: Match | None, plan: HostPlan) -> EntryView:
    """The view of an entry, with its tier or what keeps it from the one that it wants."""
    if match is None or view.state is not EntryState.CACHED:
        return view
    if match.held.digest in plan.staying:
        return replace(view, tier=Tier.HOST)
    told = plan.told.get(match.held.digest)
    if told is None or view.reason is not Reason.CACHED or entry.tier is not Tier.HOST:
        return view
    return replace(view, reason=told.reason, message=told.message, holds_back=told.holds_back)


def write_through_memory(
    actions: Iterable[Action], world: World, plan: HostPlan
) -> tuple[Action, ...]:
    """The actions; transfers that will be locked write through the page cache if there is room.

    Their bytes are promised before the first is written. Nobody makes way for a transfer: without
    room it writes past the cache, and is read from the disk once it may be locked.
    """
    ledger, room = plan.ledger, plan.room_bytes
    chosen: list[Action] = []
    may_load = world.host is not None and world.host.pressure.may_load
    for action in actions:
        size = action.entry.size_bytes if isinstance(action, Fetch) else 0
        fits = ledger is not None and size <= ledger.available_bytes
        if (
            isinstance(action, Fetch)
            and ledger is not None
            and may_load
            and fits
            and action.entry.tier.speed >= Tier.HOST.speed
            and (room is None or size <= room)
        ):
            ledger = ledger.reserve(action.entry.uid, size)
            room = None if room is None else room - size
            chosen.append(replace(action, through_memory=True))
        else:
            chosen.append(action)
    return tuple(chosen)


def _find_wanted(
    world: World, matches: Mapping[str, Match], condemned: frozenset[str]
) -> Mapping[str, Wanted]:
    """By digest. Only what is verified, adopted and stays on the disk.

    What is wanted on a card is kept here too, for pods that do not have the card, as far as there
    is room: it displaces nothing that is placed in this tier.
    """
    wanted: dict[str, Wanted] = {}
    standing = find_standing(world.entries, matches)
    for entry in world.entries:
        match = matches.get(entry.uid)
        if entry.tier.speed < Tier.HOST.speed or match is None:
            continue
        if match.held.digest in condemned:
            continue
        held = match.held
        if not held.is_verified or not match.is_adopted:
            continue
        before = wanted.get(
            held.digest, Wanted(price_from_disk(held), entry.uid, standing[held.digest])
        )
        wanted[held.digest] = replace(
            before,
            is_placed=before.is_placed
            or (entry.origin is not EntryOrigin.DEMAND and entry.tier is Tier.HOST),
            is_protected=before.is_protected
            or not entry.evictable
            or entry.uid in world.attached
            or held.digest in world.mounted,
            is_waited_for=before.is_waited_for or entry.uid in world.attached,
        )
    return wanted


def _find_order(wanted: Mapping[str, Wanted], policy: EvictionPolicy) -> Mapping[str, int]:
    """One order for all questions: some policies order two contents by what else there is.

    A higher priority is worth more than whatever the policy finds.
    """
    ranked = sorted(
        policy.rank(each.held for each in wanted.values()),
        key=lambda one: wanted[one.held.digest].standing,
    )
    return {each.held.digest: place for place, each in enumerate(ranked)}


def _in_turn(draft: Draft) -> list[str]:
    """Placement before demand, which never takes the room first; then whoever is worth most.

    In another order, a content could come back into the room that it was made to leave.
    """
    return sorted(
        draft.wanted, key=lambda digest: (not draft.wanted[digest].is_placed, -draft.order[digest])
    )


def _tell_no_tier(host: HostView | None) -> Told:
    if host is None or host.unfit is None:
        message = "this node has no host tier: give its profile a host capacity"
    else:
        message = host.unfit
    return Told(Reason.HOST_TIER_UNFIT, message)


def _yield_to_pressure(draft: Draft) -> None:
    """What was let go stays let go; this round's bytes come on top, unused contents first."""
    host, pressure = draft.host, draft.host.pressure
    if pressure.may_load:
        return
    draft.rechecks.append(draft.world.now + PRESSURE_RECHECK_SECONDS)
    ranked = draft.policy.rank(draft.wanted[d].held for d in host.locked & draft.wanted.keys())
    if pressure.free_bytes:
        _end_loads(draft)
    for each in ranked:
        if each.held.digest in host.condemned:
            _let_go(draft, each)
    base = host.ledger.freed_bytes(draft.leaving)
    in_use = draft.world.in_use or frozenset()
    for each in sorted(
        (each for each in ranked if each.held.digest not in draft.leaving),
        key=lambda r: (
            r.held.digest in in_use or draft.wanted[r.held.digest].is_protected,
            draft.wanted[r.held.digest].standing,
        ),
    ):
        if host.ledger.freed_bytes(draft.leaving) - base >= pressure.free_bytes:
            break
        _let_go(draft, each)


def _end_loads(draft: Draft) -> None:
    cause = draft.host.pressure.cause
    for digest in draft.host.loading:
        draft.leaving.setdefault(digest, cause)
        draft.condemned.add(digest)
        draft.told[digest] = Told(Reason.HOST_MEMORY_LOW, _describe_pressure(cause))


def _let_go(draft: Draft, ranked: Ranked) -> None:
    cause = draft.host.pressure.cause
    condemn(draft, ranked, cause, EvictionCause.PRESSURE)
    draft.told[ranked.held.digest] = Told(Reason.HOST_MEMORY_LOW, _describe_pressure(cause))


def _describe_pressure(cause: str) -> str:
    return f"on the disk only: {cause}; it is locked again when that is over"


def _consider(draft: Draft, held: Held) -> None:
    host, book, digest = draft.host, draft.ledger, held.digest
    setback = host.setbacks.get(digest)
    if digest in host.loading:
        draft.told[digest] = _loading(draft, digest, "its pages are being locked in memory")
        return
    if setback is not None and setback.retry_at > draft.world.now:
        draft.rechecks.append(setback.retry_at)
        draft.told[digest] = Told(setback.reason, setback.message)
        return
    # What only leaving contents have locked is read again once they are gone.
    needed = sum_sizes(held.blobs - host.list_blobs(draft.leaving))
    refusal = _refuse(draft, held, needed)
    if refusal is not None:
        draft.rechecks.append(draft.world.now + ROOM_RECHECK_SECONDS)
        draft.told[digest] = refusal
    elif needed > max(0, book.available_bytes):
        draft.told[digest] = make_room(draft, held)
    else:
        draft.ledger = book.reserve(digest, needed)
        draft.room_bytes = None if draft.room_bytes is None else draft.room_bytes - needed
        is_free = not host.loading and not draft.promotions
        message = "its pages are being locked in memory" if is_free else "waits for its turn"
        if is_free:
            draft.promotions.append(Promote(held.digest, needed))
        draft.told[digest] = _loading(draft, digest, message)


def _loading(draft: Draft, digest: str, message: str) -> Told:
    """Pods that show it already go on; new ones wait, so that they touch no page before us.

    What failed before says so until it succeeds: a status that told of each try would be written
    again and again.
    """
    is_new, setback = digest not in draft.world.mounted, draft.host.setbacks.get(digest)
    if setback is not None:
        return Told(setback.reason, setback.message, holds_back=is_new)
    return Told(Reason.LOADING, message, holds_back=is_new)


def _refuse(draft: Draft, held: Held, needed: int) -> Told | None:
    """Why it cannot be locked, whoever makes way."""
    if held.size_bytes > draft.host.ledger.capacity_bytes:
        message = (
            f"on the disk only: it has {describe_amount(held.size_bytes)}, the host tier's "
            f"capacity is {describe_amount(draft.host.ledger.capacity_bytes)}"
        )
        return Told(Reason.HOST_TIER_BYPASSED, message)
    if not draft.host.pressure.may_load:
        return Told(Reason.HOST_MEMORY_LOW, _describe_pressure(draft.host.pressure.cause))
    if draft.room_bytes is not None and needed > draft.room_bytes:
        message = (
            f"on the disk only: locking {describe_amount(needed)} would leave less than "
            f"{HIGH_PERCENT}% of the node's memory or of the agent's limit"
        )
        return Told(Reason.HOST_MEMORY_LOW, message)
    return None


def _finish(draft: Draft, matches: Mapping[str, Match], labels: frozenset[str]) -> HostPlan:
    """A label falls back to `disk` before a page is unlocked."""
    host, world = draft.host, draft.world
    staying = host.locked - draft.leaving.keys()
    marked = frozenset(
        entry.label_key
        for entry in world.entries
        if entry.label_key is not None
        and entry.label_key in labels
        and entry.uid in matches
        and matches[entry.uid].held.digest in staying
    )
    is_told = world.node_labels is not None and host.marked <= marked
    known = host.locked | host.loading
    return HostPlan(
        demotions=tuple(
            Demote(digest, draft.leaving[digest])
            for digest in sorted(draft.leaving)
            if is_told or digest in host.loading
        ),
        promotions=tuple(draft.promotions),
        marked=marked,
        condemned=frozenset(draft.condemned & known),
        victims=tuple(draft.victims[digest] for digest in sorted(draft.victims)),
        told=draft.told,
        staying=staying,
        fell_short=draft.fell_short,
        rechecks=tuple(draft.rechecks),
        ledger=draft.ledger,
        room_bytes=draft.room_bytes,
    )
