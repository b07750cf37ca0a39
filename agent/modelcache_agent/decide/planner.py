"""From what is seen to what is done next. Pure.

The order is the safety argument: labels are set and unset first, and bytes go only in a later
plan, when the Node is known to carry no label that is not wanted any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelcache_agent.decide.actions import (
    Action,
    CancelFetch,
    DropPartial,
    Evict,
    PauseFetch,
    Plan,
    Remove,
    SetLabels,
)
from modelcache_agent.decide.admission import Room, describe_never_fits, shed
from modelcache_agent.decide.dismissal import dismiss
from modelcache_agent.decide.entries import (
    Draft,
    consider,
    find_setback,
    is_given_up,
    refine,
)
from modelcache_agent.decide.faults import tell_faults
from modelcache_agent.decide.gpu.plan import GpuPlan, apply_gpu, plan_gpu
from modelcache_agent.decide.host_plan import (
    HostPlan,
    apply_host,
    plan_host,
    write_through_memory,
)
from modelcache_agent.decide.label_choice import choose_labels
from modelcache_agent.decide.matching import Match, find_standing, match_entries
from modelcache_agent.decide.measures import EvictionCause
from modelcache_agent.decide.policies import EvictionPolicy, LeastRecentlyUsed
from modelcache_agent.decide.relief import relieve
from modelcache_agent.decide.scrub import choose_scrub, list_isolations
from modelcache_agent.decide.setbacks import DISCARDING_REASONS
from modelcache_agent.decide.turns import list_yielding, order_by_turn
from modelcache_api.names import EntryOrigin, EntryState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelcache_agent.decide.world import World
    from modelcache_api.v1alpha1.cache_node import EntrySpec


def make_plan(world: World, policy: EvictionPolicy | None = None) -> Plan:
    """The next actions, in order, with the state of each entry and the labels that are true."""
    matches = match_entries(world.entries, world.held)
    gone = _find_gone(world, matches)
    wanted = {
        (entry.uid, entry.source_digest)
        for entry in world.entries
        if entry.origin is not EntryOrigin.HOLD
    }
    flights = {f.uid: f for f in world.flights if (f.uid, f.source_digest) in wanted}
    protected = _find_protected(world, matches)
    room = shed(_survey(world, matches, protected, gone, policy or LeastRecentlyUsed()))
    room = dismiss(room, world.dismissed - protected)
    room = relieve(room, world.pressure)
    busy = sum(flight.state is not EntryState.PENDING for flight in flights.values())
    draft = Draft(
        room,
        free_slots=world.max_models - busy,
        yielding=list_yielding(world, flights.values()),
        in_repair={d.blob for uid in matches.keys() & flights for d in matches[uid].held.damage},
    )
    views = {
        entry.uid: consider(draft, world, entry, matches.get(entry.uid), flights.get(entry.uid))
        for entry in order_by_turn(world)
    }
    condemned = draft.room.leaving - gone
    asked = frozenset(v.digest for v in draft.room.victims if v.kind is EvictionCause.ASKED)
    labels = choose_labels(world.entries, matches, condemned=condemned)
    chosen, leaving = policy or LeastRecentlyUsed(), draft.room.leaving
    host = plan_host(world, matches, chosen, labels=labels, condemned=leaving)
    gpu = plan_gpu(world, matches, chosen, labels=labels, leaving=leaving)
    removals = _removals(world, matches, gone=gone, condemned=condemned, on_card=gpu.busy)
    scrub = choose_scrub(world)
    actions: tuple[Action, ...] = (
        *(CancelFetch(flight.uid) for flight in world.flights if flight.uid not in flights),
        *(PauseFetch(uid) for uid in dict.fromkeys(draft.paused)),
        *_labels_to_set(world, labels, host, gpu),
        *gpu.demotions,
        *host.demotions,
        *(removals if carries_only(world.node_labels, labels) else ()),
        *_partials_to_drop(world, matches),
        *write_through_memory(draft.actions, world, host),
        *host.promotions,
        *gpu.promotions,
        *(() if scrub.action is None else (scrub.action,)),
    )
    moments = [
        *draft.rechecks,
        *host.rechecks,
        *gpu.rechecks,
        *(() if scrub.recheck_at is None else (scrub.recheck_at,)),
    ]
    refined = (
        apply_gpu(
            apply_host(
                refine(
                    views[entry.uid],
                    entry,
                    matches.get(entry.uid),
                    condemned=condemned,
                    asked=asked,
                    labels=labels,
                ),
                entry,
                matches.get(entry.uid),
                host,
            ),
            entry,
            gpu,
        )
        for entry in world.entries
    )
    return Plan(
        actions=actions,
        entries=tell_faults(refined, actions, matches, world.faults or {}),
        labels=labels,
        in_memory=host.marked,
        on_device=gpu.marked,
        host_condemned=host.condemned,
        gpu_condemned=gpu.condemned,
        condemned=condemned,
        victims=draft.room.victims,
        host_victims=host.victims,
        must_look_at_use=(draft.room.fell_short or host.fell_short) and world.in_use is None,
        recheck_at=min(moments, default=None),
    )


def _find_gone(world: World, matches: Mapping[str, Match]) -> frozenset[str]:
    """Contents that no entry names and no live pod's volume shows, not even beside its own."""
    kept = {match.held.digest for match in matches.values()} | world.mounted | world.beside
    return frozenset(held.digest for held in world.held if held.digest not in kept)


def _survey(
    world: World,
    matches: Mapping[str, Match],
    protected: frozenset[str],
    gone: frozenset[str],
    policy: EvictionPolicy,
) -> Room:
    """The room before newcomers are looked at. Who was not seen unused counts as in use."""
    in_use = {held.digest for held in world.held} if world.in_use is None else world.in_use
    return Room(
        ledger=world.ledger,
        free_bytes=world.free_bytes,
        policy=policy,
        unused=tuple(
            held
            for held in world.held
            if held.digest not in protected | gone and held.digest not in in_use
            if not held.damage
        ),
        leaving=gone,
        condemned_before=world.condemned,
        fresh=world.fresh,
        kept_free_bytes=world.kept_free_bytes,
        standing=find_standing(world.entries, matches),
    )


def _find_protected(world: World, matches: Mapping[str, Match]) -> frozenset[str]:
    """Digests of what stays, whether or not a process has it open."""
    return world.mounted | {
        matches[entry.uid].held.digest
        for entry in world.entries
        if entry.uid in matches and (not entry.evictable or entry.uid in world.attached)
    }


def carries_only(node_labels: frozenset[str] | None, labels: frozenset[str]) -> bool:
    """True once the Node is known to carry none but wanted labels."""
    return node_labels is not None and node_labels <= labels


def _labels_to_set(
    world: World, labels: frozenset[str], host: HostPlan, gpu: GpuPlan
) -> tuple[SetLabels, ...]:
    in_memory = frozenset() if world.host is None else world.host.marked
    on_device = frozenset() if world.gpu is None else world.gpu.marked
    if (world.node_labels, in_memory, on_device) == (labels, host.marked, gpu.marked):
        return ()
    return (SetLabels(labels, host.marked, gpu.marked),)


def _removals(
    world: World,
    matches: Mapping[str, Match],
    *,
    gone: frozenset[str],
    condemned: frozenset[str],
    on_card: frozenset[str],
) -> tuple[Action, ...]:
    """What leaves the disk. Faster tiers have let go of it in an earlier plan."""
    locked = on_card
    if world.host is not None:
        locked |= world.host.locked | world.host.loading
    removals: list[Action] = [
        Remove(held.digest) for held in world.held if held.digest in gone - locked
    ]
    # What is only held is not fetched anyway, and is fetched when it is wanted again.
    wanted = {entry.uid for entry in world.entries if entry.origin is not EntryOrigin.HOLD}
    for held in world.held:
        if held.digest in condemned - locked:
            uids = sorted(uid for uid in wanted & matches.keys() if matches[uid].held == held)
            removals.append(Evict(held.digest, tuple(uids)))
    unlocked = tuple(held for held in world.held if held.digest not in locked)
    return (*removals, *list_isolations(unlocked))


def _partials_to_drop(world: World, matches: Mapping[str, Match]) -> tuple[DropPartial, ...]:
    """Unfinished files that will not be resumed."""
    kept = {flight.uid for flight in world.flights}
    kept |= {
        entry.uid
        for entry in world.entries
        if not is_given_up(world, entry) and _may_resume(world, entry, matches.get(entry.uid))
    }
    return tuple(DropPartial(uid) for uid in sorted(world.ledger.partials) if uid not in kept)


def _may_resume(world: World, entry: EntrySpec, match: Match | None) -> bool:
    if match is not None:
        # The sound pieces of a damaged file are worth keeping, whatever its source says.
        return bool(match.held.damage)
    setback = find_setback(world, entry)
    is_useless = setback is not None and setback.reason in DISCARDING_REASONS
    is_waiting = setback is not None and setback.retry_at > world.now
    return not (is_useless and is_waiting) and describe_never_fits(entry, world.ledger) is None
