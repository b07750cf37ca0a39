"""Which contents are loaded on the card, and which are let go. Pure.

The GPU tier never fails an entry: what is not there stays in host memory or on the disk and says
why. A newcomer displaces only what no pod uses and is worth less: of lower priority, or, among
equals, ranked below it by the policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.actions import FreeOnDevice, LoadOnDevice, Victim
from modelcache_agent.decide.gpu.room import Candidate, Key, Room, Stay, make_room
from modelcache_agent.decide.gpu.world import EMULATED_MESSAGE
from modelcache_agent.decide.host_draft import Told, price_from_disk
from modelcache_agent.decide.matching import standing_of
from modelcache_agent.decide.measures import EvictionCause
from modelcache_api.names import EntryOrigin, EntryState, Reason, Tier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelcache_agent.decide.actions import EntryView
    from modelcache_agent.decide.gpu.world import GpuSetback, GpuView
    from modelcache_agent.decide.matching import Match
    from modelcache_agent.decide.policies import EvictionPolicy, Ranked
    from modelcache_agent.decide.world import Held, World
    from modelcache_api.v1alpha1.cache_node import EntrySpec

# Others give memory of the card back without an event; how long a content waits for it.
ROOM_RECHECK_SECONDS: Final = 30.0
_OFF: Final = "this node has no GPU tier: give its profile a GPU capacity"
_ELSEWHERE: Final = "not in GPU memory: "


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """`marked` are the label keys that may say `gpu`; `told` and `staying` are by entry's uid.

    `busy` are contents whose files stay on the disk until the card has given their copies up.
    """

    demotions: tuple[FreeOnDevice, ...] = ()
    promotions: tuple[LoadOnDevice, ...] = ()
    marked: frozenset[str] = frozenset()
    condemned: frozenset[Key] = frozenset()
    told: Mapping[str, Told] = field(default_factory=dict)
    staying: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()
    is_emulated: bool = False
    rechecks: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A version that its entry wants on the card."""

    held: Held
    standing: int
    is_placed: bool
    is_protected: bool


@dataclass(slots=True)
class _Draft:
    world: World
    gpu: GpuView
    wanted: Mapping[Key, _Wanted]
    policy: EvictionPolicy
    ranked: Mapping[str, Ranked]
    """By digest, what the policy finds, in its order: the least goes first."""
    worth: Mapping[Key, tuple[int, int]]
    """The standing of each that is wanted, then its place in the policy's order."""
    leaving: dict[Key, str]
    """Why each of these is let go."""
    victims: dict[Key, Victim] = field(default_factory=dict)
    """Explains those of them that leave for others' sake."""
    is_waiting: bool = False
    """Somebody loads or waits for room: one at a time."""
    condemned: set[Key] = field(default_factory=set)
    promotions: list[LoadOnDevice] = field(default_factory=list)
    told: dict[str, Told] = field(default_factory=dict)
    rechecks: list[float] = field(default_factory=list)


def plan_gpu(
    world: World,
    matches: Mapping[str, Match],
    policy: EvictionPolicy,
    *,
    labels: frozenset[str],
    leaving: frozenset[str],
) -> GpuPlan:
    """The GPU tier's part of a plan. `leaving` leave the disk, `labels` are what stays."""
    gpu = world.gpu
    if gpu is None or gpu.why_off is not None:
        told = Told(Reason.GPU_UNAVAILABLE, _OFF if gpu is None else f"{_ELSEWHERE}{gpu.why_off}")
        return GpuPlan(told={e.uid: told for e in world.entries if e.tier is Tier.GPU})
    wanted = _find_wanted(world, gpu, matches, leaving)
    held = {one.held.digest: one.held for one in wanted.values()}
    ranked: dict[str, Ranked] = {each.held.digest: each for each in policy.rank(held.values())}
    places = {digest: place for place, digest in enumerate(ranked)}
    draft = _Draft(
        world=world,
        gpu=gpu,
        wanted=wanted,
        policy=policy,
        ranked=ranked,
        worth={key: (one.standing, places[one.held.digest]) for key, one in wanted.items()},
        leaving={
            key: "no entry wants it in GPU memory"
            for key, copy in gpu.held.items()
            if key not in wanted or wanted[key].held.digest != copy.digest
        },
        is_waiting=bool(gpu.loading),
    )
    _yield_room(draft)
    for key in _in_turn(draft):
        if key not in gpu.held:
            draft.told[key.uid] = _consider(draft, key)
    return _finish(draft, labels)


def apply_gpu(view: EntryView, entry: EntrySpec, plan: GpuPlan) -> EntryView:
    """The view of an entry, with its tier or what keeps it from the one that it wants."""
    if view.state is not EntryState.CACHED:
        return view
    if entry.uid in plan.staying:
        message = EMULATED_MESSAGE if plan.is_emulated and not view.message else view.message
        return replace(view, tier=Tier.GPU, message=message)
    told = plan.told.get(entry.uid)
    if told is None or view.reason is not Reason.CACHED or entry.tier is not Tier.GPU:
        return view
    return replace(view, reason=told.reason, message=told.message)


def _find_wanted(
    world: World, gpu: GpuView, matches: Mapping[str, Match], leaving: frozenset[str]
) -> Mapping[Key, _Wanted]:
    """Only what is verified, adopted and stays on the disk. Each namespace has its own copy."""
    wanted: dict[Key, _Wanted] = {}
    for entry in world.entries:
        match, namespace = matches.get(entry.uid), gpu.namespaces.get(entry.uid)
        if entry.tier is not Tier.GPU or match is None or namespace is None:
            continue
        held = match.held
        if held.is_verified and match.is_adopted and held.digest not in leaving:
            wanted[Key(namespace, entry.uid)] = _Wanted(
                price_from_disk(held),
                standing_of(entry),
                is_placed=entry.origin is not EntryOrigin.DEMAND,
                is_protected=not entry.evictable
                or entry.uid in world.attached
                or held.digest in world.mounted,
            )
    return wanted


def _in_turn(draft: _Draft) -> list[Key]:
    """Placement before demand, which never takes the room first; then whoever is worth most."""

    def turn(key: Key) -> tuple[bool, int, int, Key]:
        standing, place = draft.worth[key]
        return not draft.wanted[key].is_placed, -standing, -place, key

    return sorted(draft.wanted, key=turn)


def _yield_room(draft: _Draft) -> None:
    """What no longer fits beside others' use goes, the least valuable first; readers are spared.

    What must stay goes last: the memory is others' already.
    """
    gpu = draft.gpu
    gone = sum(
        copy.size_bytes
        for key, copy in gpu.held.items()
        if key in draft.leaving and not copy.is_attached
    )
    surplus = gpu.budget.surplus_bytes(gpu.held_bytes) - gone
    for key in sorted(
        gpu.held.keys() - draft.leaving.keys(),
        key=lambda key: (draft.wanted[key].is_protected, _rank(draft, key)),
    ):
        copy = gpu.held[key]
        if surplus <= 0:
            break
        if not copy.is_attached:
            surplus -= copy.size_bytes
            message = f"{_ELSEWHERE}{gpu.budget.why}"
            told = Told(Reason.GPU_OUT_OF_MEMORY, message)
            _let_go(draft, key, gpu.budget.why, told, EvictionCause.PRESSURE)


def _let_go(draft: _Draft, key: Key, cause: str, told: Told, kind: EvictionCause) -> None:
    ranked = draft.ranked[draft.wanted[key].held.digest]
    victim = Victim(ranked.held.digest, draft.policy.name, ranked.score, ranked.why, cause, kind)
    draft.victims[key] = victim
    draft.leaving[key] = str(victim)
    draft.condemned.add(key)
    draft.told[key.uid] = told


def _rank(draft: _Draft, key: Key) -> tuple[bool, bool, tuple[int, ...], Key]:
    """Who gives way first: what goes anyway, former victims, the lowest standing, the policy's."""
    worth = draft.worth.get(key, ())
    return key not in draft.leaving, key not in draft.gpu.condemned, worth, key


def _consider(draft: _Draft, key: Key) -> Told:
    gpu, now, digest = draft.gpu, draft.world.now, draft.wanted[key].held.digest
    setback, needed = gpu.setbacks.get(key), gpu.needed.get(digest)
    is_active = setback is not None and setback.retry_at > now
    if key in gpu.loading:
        return Told(Reason.LOADING, "it is being copied to the card")
    if setback is not None and is_active and not _may_try_again(setback, gpu):
        draft.rechecks.append(setback.retry_at)
        return Told(setback.reason, setback.message)
    if needed == 0:
        return Told(
            Reason.GPU_UNSUITED, f"{_ELSEWHERE}the version has no safetensors files with bytes"
        )
    if needed is None or draft.is_waiting:
        return Told(Reason.LOADING, "waits for its turn to be copied to the card")
    # Once somebody has given way after a refusal, the book counts again.
    was_refused = (
        setback is not None and is_active and setback.refused_beside == frozenset(gpu.held)
    )
    room = make_room(
        needed,
        gpu.budget,
        _list_candidates(draft, key),
        lingering_bytes=gpu.lingering_bytes,
        was_refused=was_refused,
    )
    if isinstance(room, Stay):
        draft.rechecks.append(now + ROOM_RECHECK_SECONDS)
        message = setback.message if setback is not None and was_refused else room.message
        return Told(Reason.GPU_OUT_OF_MEMORY, f"{_ELSEWHERE}{message}")
    draft.is_waiting = True
    return _take_room(draft, key, needed, room)


def _may_try_again(setback: GpuSetback, gpu: GpuView) -> bool:
    """After a refusal: while nothing was loaded since, so that nobody comes and goes in vain."""
    return setback.refused_beside is not None and gpu.held.keys() <= setback.refused_beside


def _take_room(draft: _Draft, key: Key, needed: int, room: Room) -> Told:
    if not room.victims:
        digest = draft.wanted[key].held.digest
        draft.promotions.append(LoadOnDevice(key, digest, needed))
        return Told(Reason.LOADING, "it is being copied to the card")
    for victim in room.victims:
        if victim not in draft.leaving:
            message = f"{_ELSEWHERE}it made way for a version that is used more"
            told = Told(Reason.GPU_OUT_OF_MEMORY, message)
            cause = f"uid={key.uid} needs room on the card"
            _let_go(draft, victim, cause, told, EvictionCause.ROOM)
    return Told(Reason.LOADING, f"waits until {needed} bytes of GPU memory are released")


def _list_candidates(draft: _Draft, newcomer: Key) -> list[Candidate]:
    """All that the card holds, in the order in which it gives way; who does not is attached."""
    return [
        Candidate(key, draft.gpu.held[key].size_bytes, _is_spared(draft, key, newcomer))
        for key in sorted(draft.gpu.held, key=lambda key: _rank(draft, key))
    ]


def _is_spared(draft: _Draft, key: Key, newcomer: Key) -> bool:
    """A reader's copy frees nothing. Demand displaces no placement, nobody his betters."""
    if draft.gpu.held[key].is_attached:
        return True
    if key in draft.leaving:
        return False
    one, other = draft.wanted[key], draft.wanted[newcomer]
    return (
        one.is_protected
        or (one.is_placed and not other.is_placed)
        or draft.worth[key] >= draft.worth[newcomer]
    )


def _finish(draft: _Draft, labels: frozenset[str]) -> GpuPlan:
    """A label falls back before a byte of the card is given up."""
    gpu, world = draft.gpu, draft.world
    staying = frozenset(key.uid for key in gpu.held if key not in draft.leaving)
    marked = frozenset(
        entry.label_key
        for entry in world.entries
        if entry.uid in staying and entry.label_key is not None and entry.label_key in labels
    )
    is_told = world.node_labels is not None and gpu.marked <= marked
    on_card = {copy.digest for copy in gpu.held.values()}
    loading = {draft.wanted[key].held.digest for key in gpu.loading if key in draft.wanted}
    return GpuPlan(
        demotions=tuple(
            FreeOnDevice(key, draft.leaving[key], draft.victims.get(key))
            for key in sorted(draft.leaving)
            if is_told
        ),
        promotions=tuple(draft.promotions),
        marked=marked,
        condemned=frozenset(draft.condemned),
        told=draft.told,
        staying=staying,
        busy=frozenset(on_card | loading),
        is_emulated=gpu.is_emulated,
        rechecks=tuple(draft.rechecks),
    )
