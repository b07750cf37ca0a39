"""Slots: leave to read limited sources, handed out by the leader. Knows nothing of HTTP.

All of it lives in memory. A new leader lets nobody begin before every lease of its predecessor has
run out or was renewed with it; until then it believes what nodes say that they hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from modelcache_api.names import EntryOrigin, EntryState
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import SlotAnswer, SlotQuery
from modelcache_operator.decide.fleet_limits import (
    FleetLimits,
    Scope,
    ScopeName,
    find_scopes,
    list_scopes,
)
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.node_status import is_lost
from modelcache_operator.decide.slots import (
    Key,
    Queue,
    Reader,
    Waiter,
    choose_pause,
    choose_rate,
    describe_wait,
    list_queue,
)
from modelcache_operator.decide.world import ModelVersionView, NodeName, Uid
from modelcache_operator.ports.world import ObservedWorld

# A node whose lease has run out needs a moment to hang up.
_HANG_UP_SECONDS: Final = 5.0
# How long what the CacheNodes say is used without looking again: a look is over all of them.
_LOOK_SECONDS: Final = 1.0
_ELSEWHERE_SECONDS: Final = 1.0
# Whoever was told to ask again and has not after so many times the pause does not wait any more.
_MISSED_TURNS: Final = 3


@dataclass(frozen=True, slots=True)
class ScopeUse:
    """How one limit is used now."""

    name: ScopeName
    readers: int
    waiting: int
    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    waiter: Waiter
    until: float


@dataclass(frozen=True, slots=True)
class _Heard:
    """The last question about a transfer, remembered until its lease must have run out."""

    asked_at: float
    until: float


class Slots:
    """Answers for one transfer at a time; only the leader hands anything out."""

    def __init__(
        self,
        world: ObservedWorld,
        limits: Callable[[], FleetLimits],
        *,
        is_leader: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._world = world
        self._limits = limits
        self._is_leader = is_leader
        self._clock = clock
        self._since: float | None = None
        self._readers: dict[Key, Reader] = {}
        self._waiting: dict[Key, _Waiting] = {}
        self._heard: dict[Key, _Heard] = {}
        self._strangers: tuple[float, Mapping[ScopeName, frozenset[str]]] = (float("-inf"), {})

    def begin_term(self) -> None:
        """This replica leads from now on, and knows nothing of what another one promised."""
        self._readers.clear()
        self._waiting.clear()
        self._heard.clear()
        self._since = self._clock()

    def end_term(self) -> None:
        """This replica does not lead any more."""
        self._since = None

    def covers(self, version: ModelVersionView) -> bool:
        """True if a limit covers the version's source."""
        return bool(self._find(version))

    def ask(
        self, caller: Caller, entry: EntrySpec, version: ModelVersionView, query: SlotQuery
    ) -> SlotAnswer:
        """Whether the caller may read the version's source now; renews what it has."""
        limits, names = self._limits(), self._find(version)
        if not names:
            self.release(caller, entry.uid, query)
            return SlotAnswer(is_limited=False)
        key: Key = (entry.uid, caller.node_uid)
        if not self._leads() or not self._hear(key, query):
            message = "the replica of the operator that decides it is looked for"
            return SlotAnswer(leads=False, ask_again_seconds=_ELSEWHERE_SECONDS, message=message)
        now = self._clock()
        is_demanded = entry.origin is EntryOrigin.DEMAND
        known = self._note_holding(key, names, query, now)
        if not query.wants:
            self._drop(key)
            return SlotAnswer(ask_again_seconds=limits.renew_interval)
        if known is not None:
            self._waiting.pop(key, None)
            reader = replace(known, scopes=names, is_demanded=is_demanded)
            return self._renew(reader, now)
        before = self._waiting.get(key)
        since = before.waiter.since if before else now - query.waited_seconds
        waiter = Waiter(key, names, since, is_demanded)
        self._waiting[key] = _Waiting(waiter, now + limits.lease_seconds)
        if self._is_learning(now):
            message = "a new leader of the operator learns first who reads now"
            return self._wait(waiter, limits.renew_interval, message, now)
        return self._answer_newcomer(waiter, now)

    def release(self, caller: Caller, uid: str, query: SlotQuery) -> None:
        """The transfer is over, or waits for no slot any more: what it had is free at once."""
        key: Key = (uid, caller.node_uid)
        if self._hear(key, query):
            self._drop(key)

    def list_use(self) -> tuple[ScopeUse, ...]:
        """Each limit and how it is used; none on a replica that does not lead."""
        if not self._leads():
            return ()
        self._forget(self._clock())
        return tuple(self._use(name) for name in list_scopes(self._limits()))

    def _use(self, name: ScopeName) -> ScopeUse:
        readers = [reader for reader in self._readers.values() if name in reader.scopes]
        waiting = sum(name in item.waiter.scopes for item in self._waiting.values())
        nodes = {r.key[1] for r in readers} | self._find_strangers().get(name, frozenset())
        return ScopeUse(name, len(nodes), waiting, sum(r.bytes_per_second or 0 for r in readers))

    def _leads(self) -> bool:
        return self._since is not None and self._is_leader()

    def _is_learning(self, now: float) -> bool:
        lease = self._limits().lease_seconds + _HANG_UP_SECONDS
        return self._since is not None and now < self._since + lease

    def _hear(self, key: Key, query: SlotQuery) -> bool:
        """False if a later question has overtaken this one: then it is as if it were lost."""
        now = self._clock()
        self._forget(now)
        heard = self._heard.get(key)
        if heard is not None and query.asked_at < heard.asked_at:
            return False
        until = now + self._limits().lease_seconds + _HANG_UP_SECONDS
        self._heard[key] = _Heard(query.asked_at, until)
        return True

    def _find(self, version: ModelVersionView) -> tuple[ScopeName, ...]:
        return find_scopes(self._limits(), version.key.namespace, version.spec.source.uri)

    def _note_holding(
        self, key: Key, names: tuple[ScopeName, ...], query: SlotQuery, now: float
    ) -> Reader | None:
        """What the caller holds, now that it has said so: earlier promises to it are void."""
        if not query.holds:
            self._readers.pop(key, None)
            return None
        known, stated = self._readers.get(key), query.bytes_per_second
        if known is None and self._is_learning(now):
            until = now + self._limits().lease_seconds + _HANG_UP_SECONDS
            known = Reader(key, names, until, bytes_per_second=stated)
        if known is None:
            return None
        # Nobody was told to go faster than was promised, whatever he says.
        rates = [rate for rate in (known.bytes_per_second, stated) if rate is not None]
        known = replace(known, bytes_per_second=min(rates, default=None))
        self._readers[key] = known
        return known

    def _answer_newcomer(self, waiter: Waiter, now: float) -> SlotAnswer:
        scopes, interval = list_scopes(self._limits()), self._limits().renew_interval
        queue = self._list_queue(scopes)
        place = queue.find(waiter.key)
        if place is not None:
            ahead, name = place
            message = describe_wait(name, self._use(name).readers, ahead)
            return self._wait(waiter, choose_pause(ahead, interval), message, now)
        rate = choose_rate(scopes, self._list_readers(), queue.admitted, waiter)
        if rate == 0:
            message = "next: the nodes that read now give up a part of the bandwidth for it"
            return self._wait(waiter, interval / 2, message, now)
        del self._waiting[waiter.key]
        reader = Reader(waiter.key, waiter.scopes, now, waiter.is_demanded, rate)
        return self._promise(reader, rate, now)

    def _renew(self, reader: Reader, now: float) -> SlotAnswer:
        """While it is not known who else reads, nobody is given more than it has."""
        scopes, keeps_to = list_scopes(self._limits()), reader.bytes_per_second
        rate = choose_rate(
            scopes,
            self._list_readers(),
            self._list_queue(scopes).admitted,
            reader,
            keeps_to=keeps_to,
            may_rise=not self._is_learning(now),
        )
        # Until the caller says that it keeps to the new one, the higher of both counts.
        counted = None if rate is None else max(rate, keeps_to or 0)
        return self._promise(replace(reader, bytes_per_second=counted), rate, now)

    def _promise(self, reader: Reader, rate: int | None, now: float) -> SlotAnswer:
        limits = self._limits()
        until = now + limits.lease_seconds + _HANG_UP_SECONDS
        self._readers[reader.key] = replace(reader, until=until)
        return SlotAnswer(
            lease_seconds=limits.lease_seconds,
            bytes_per_second=rate,
            ask_again_seconds=limits.renew_interval,
        )

    def _wait(self, waiter: Waiter, seconds: float, message: str, now: float) -> SlotAnswer:
        until = now + _MISSED_TURNS * seconds + _HANG_UP_SECONDS
        self._waiting[waiter.key] = _Waiting(waiter, until)
        return SlotAnswer(ask_again_seconds=seconds, message=message)

    def _list_queue(self, scopes: Mapping[ScopeName, Scope]) -> Queue:
        waiters = [item.waiter for item in self._waiting.values()]
        return list_queue(scopes, self._list_readers(), waiters, self._find_strangers())

    def _list_readers(self) -> tuple[Reader, ...]:
        return tuple(self._readers.values())

    def _drop(self, key: Key) -> None:
        self._readers.pop(key, None)
        self._waiting.pop(key, None)

    def _forget(self, now: float) -> None:
        self._readers = {k: v for k, v in self._readers.items() if v.until > now}
        self._waiting = {k: v for k, v in self._waiting.items() if v.until > now}
        self._heard = {k: v for k, v in self._heard.items() if v.until > now}

    def _find_strangers(self) -> Mapping[ScopeName, frozenset[str]]:
        """Nodes that fetch, by their status, and have not asked us: they began before the limit."""
        now = self._clock()
        if now - self._strangers[0] >= _LOOK_SECONDS:
            self._strangers = (now, self._look_for_strangers())
        return self._strangers[1]

    def _look_for_strangers(self) -> Mapping[ScopeName, frozenset[str]]:
        found: defaultdict[ScopeName, set[str]] = defaultdict(set)
        covered = {
            version.uid: names
            for version in self._world.model_versions()
            if (names := self._find(version))
        }
        for uid, node_uid in _list_fetching(self._world, covered):
            if (uid, node_uid) not in self._heard:
                for name in covered[uid]:
                    found[name].add(node_uid)
        return {name: frozenset(nodes) for name, nodes in found.items()}


def _list_fetching(
    world: ObservedWorld, covered: Mapping[Uid, object]
) -> Iterable[tuple[Uid, Uid]]:
    for cache_node in world.cache_nodes():
        node = world.node(NodeName(cache_node.name))
        if node is None or node.uid != cache_node.spec.node_uid or is_lost(cache_node):
            continue
        for status in cache_node.status.entries:
            uid = Uid(status.uid)
            if status.state is EntryState.DOWNLOADING and uid in covered:
                yield uid, node.uid
