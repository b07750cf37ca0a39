"""What the loop remembers between two turns. All of it can be lost: a restart finds it again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcache_agent.decide.actions import Action
from modelcache_agent.decide.beside import find_shown_beside
from modelcache_agent.decide.dismissal import find_dismissed
from modelcache_agent.decide.faults import Fault, make_fault
from modelcache_agent.decide.gpu.room import Key
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.decide.pauses import Pause
from modelcache_agent.decide.scrub import list_in_place
from modelcache_agent.decide.setbacks import Setback
from modelcache_agent.decide.volumes import Wish, find_attached, find_mounted
from modelcache_agent.decide.watermarks import NO_WATERMARKS, Pressure, Watermarks
from modelcache_agent.decide.world import Flight, World
from modelcache_agent.ports.cluster import CacheNodeView
from modelcache_agent.tiers.disk import Survey
from modelcache_api.limits import MAX_ENTRIES_PER_NODE
from modelcache_api.names import EntryState
from modelcache_api.v1alpha1.cache_node import CacheNodeStatus, EntrySpec


@dataclass(slots=True)
class RunningFetch:
    """A transfer and its reservation: the bytes are promised as long as this object is kept."""

    entry: EntrySpec
    flight: Flight
    promised_bytes: int
    through_memory: bool = False
    task: asyncio.Task[None] | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its entry has changed."""


@dataclass(slots=True)
class Memory:
    """Mutable; one event loop uses it.

    `node_labels` None: what the Node carries is not known; `labels_on_device` say `gpu` there, of
    the others `labels_in_memory` say `host`.
    `written_status` None: what the API server holds is not known.
    """

    cache_node: CacheNodeView | None = None
    fetches: dict[str, RunningFetch] = field(default_factory=dict)
    setbacks: dict[str, Setback] = field(default_factory=dict)
    adopted: frozenset[str] = frozenset()
    condemned: frozenset[str] = frozenset()
    host_condemned: frozenset[str] = frozenset()
    gpu_condemned: frozenset[Key] = frozenset()
    node_labels: frozenset[str] | None = None
    labels_in_memory: frozenset[str] = frozenset()
    labels_on_device: frozenset[str] = frozenset()
    written_status: CacheNodeStatus | None = None
    label_pause: Pause = field(default_factory=Pause)
    status_pause: Pause = field(default_factory=Pause)
    busy: set[str] = field(default_factory=set)
    faults: dict[Action, Fault] = field(default_factory=dict)
    pressure: Pressure | None = None
    published_at: dict[str, float] = field(default_factory=dict)
    """Contents that were published and are not labelled yet, by digest; monotonic seconds."""

    def count_fetching(self) -> int:
        """Transfers that take a turn: those that wait for others take none."""
        return sum(f.flight.state is not EntryState.PENDING for f in self.fetches.values())

    def note_fault(self, action: Action, message: str, *, now: float, jitter: float) -> None:
        """The action failed; it rests before it is tried again."""
        self.faults[action] = make_fault(self.faults.get(action), message, now=now, jitter=jitter)

    def rests(self, action: Action, now: float) -> bool:
        """True while the action is not to be tried again."""
        fault = self.faults.get(action)
        return fault is not None and not fault.pause.is_over(now)

    def forget_faults(self, actions: Iterable[Action]) -> None:
        """Drop the faults of all but these actions."""
        wanted = frozenset(actions)
        self.faults = {action: fault for action, fault in self.faults.items() if action in wanted}

    def welcome(self, adopted: Iterable[str]) -> None:
        """Forget why the versions failed whose trees have just been handed over: try at once."""
        now = frozenset(adopted)
        for uid in now - self.adopted:
            self.setbacks.pop(uid, None)
        self.adopted = now

    def forget_strangers(self, entries: Iterable[EntrySpec]) -> None:
        """Drop what concerns entries that are gone or changed."""
        now = {entry.uid: entry for entry in entries}
        self.setbacks = {
            uid: setback
            for uid, setback in self.setbacks.items()
            if uid in now and setback.concerns(now[uid])
        }

    def note_published(self, digest: str, now: float) -> None:
        """The content waits for its label; what waits longest is forgotten when too many do."""
        self.published_at.pop(digest, None)
        self.published_at[digest] = now
        if len(self.published_at) > MAX_ENTRIES_PER_NODE:
            del self.published_at[next(iter(self.published_at))]

    def take_labelled(self, keys: Iterable[str], now: float) -> list[float]:
        """Seconds from publication to label, of the contents that these new labels name."""
        added = frozenset(keys)
        entries = () if self.cache_node is None else self.cache_node.spec.entries
        digests = {entry.content_digest for entry in entries if entry.label_key in added}
        labelled = [digest for digest in self.published_at if digest in digests]
        return [now - self.published_at.pop(digest) for digest in labelled]


def make_ledger(
    survey: Survey,
    fetches: Mapping[str, RunningFetch],
    capacity_bytes: int,
    wanted: Iterable[str] = (),
) -> Ledger:
    """The book of this moment: what is on the disk, and what is promised to running transfers.

    A tree that was handed over counts as the beginning of its version's transfer once the version
    is wanted here, and until then as bytes that nobody may use.

    A promise ends in the moment its version is published, even if its task has not noticed yet.
    A damaged file is a quarantined one as soon as it has left its place, and missing from then on.
    """
    published = {
        (origin.uid, origin.source_digest)
        for held in survey.held
        if not held.damage
        for origin in held.origins
    }
    reservations = {
        uid: fetch.promised_bytes
        for uid, fetch in fetches.items()
        if (uid, fetch.entry.source_digest) not in published
    }
    # Blocks are rounded up and journals lie beside the files: a promise covers both.
    beginnings = Counter(survey.partials)
    expected = {uid: size for uid, size in survey.adopted.items() if uid in set(wanted)}
    beginnings.update(expected)
    partials = {uid: min(size, reservations.get(uid, size)) for uid, size in beginnings.items()}
    waiting_bytes = sum(survey.adopted.values()) - sum(expected.values())
    return Ledger(
        capacity_bytes=capacity_bytes,
        versions={held.digest: list_in_place(held) for held in survey.held},
        partials=partials,
        reservations=reservations,
        quarantined_bytes=survey.quarantined_bytes + waiting_bytes,
        pending_release_bytes=survey.pending_release_bytes,
    )


def make_world(  # noqa: PLR0913 - what was seen, and the settings that judge it
    memory: Memory,
    survey: Survey,
    ledger: Ledger,
    *,
    wishes: Sequence[Wish] = (),
    now: float,
    max_models: int,
    scrub_interval: float | None = None,
    marks: Watermarks = NO_WATERMARKS,
    min_residency: float = 0.0,
) -> World:
    """All inputs of a plan, but for which contents are in use."""
    youngest = survey.seen_at - min_residency
    node = memory.cache_node
    entries = node.spec.entries if node is not None else ()
    # An atomic list may name a version twice, a status may not: the first one counts.
    distinct = {entry.uid: entry for entry in reversed(entries)}
    return World(
        entries=tuple(reversed(distinct.values())),
        held=survey.held,
        ledger=ledger,
        free_bytes=survey.free_bytes,
        now=now,
        flights=tuple(replace(fetch.flight) for fetch in memory.fetches.values()),
        setbacks=dict(memory.setbacks),
        faults=dict(memory.faults),
        evicted=survey.evicted,
        condemned=memory.condemned,
        node_labels=memory.node_labels,
        mounted=find_mounted(wishes),
        attached=find_attached(wishes),
        beside=find_shown_beside(wish.volume for wish in wishes),
        max_models=max_models,
        checkups=survey.checkups,
        scrub_interval=scrub_interval,
        pressure=memory.pressure,
        kept_free_bytes=marks.kept_free_bytes(survey.space),
        fresh=frozenset(held.digest for held in survey.held if held.history.arrived > youngest),
        unix_now=survey.seen_at,
        dismissed=find_dismissed(
            {} if node is None else node.dismissed, entries, survey.held, survey.seen_at
        ),
    )
