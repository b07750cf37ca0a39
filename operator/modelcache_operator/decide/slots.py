"""Who may read limited sources now, at which rate, and who waits for what: pure.

A *slot* is a lease: leave to read one version's source on one node until it runs out. What is
promised is counted as long as anybody may act upon it, so a limit holds although answers are lost
and nodes fall silent.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from modelcache_operator.decide.fleet_limits import LEAST_RATE, Scope, ScopeName

# A model that a pod waits for has so many times the share of a placed one: much faster, and the
# placed ones still move.
_DEMAND_WEIGHT: Final = 4
_COARSE: Final = (0, 1, 10, 100, 1_000, 10_000, 100_000)

Key = tuple[str, str]
"""A transfer: the ModelVersion's UID and the Node's."""

Scopes = Mapping[ScopeName, Scope]


@dataclass(frozen=True, slots=True)
class Reader:
    """A transfer with a lease until `until` (monotonic seconds).

    `bytes_per_second` is the most that it may keep to; None where no limit bounds it.
    """

    key: Key
    scopes: tuple[ScopeName, ...]
    until: float
    is_demanded: bool = False
    bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class Waiter:
    """A transfer that asked for a slot and has none, since `since` (monotonic seconds)."""

    key: Key
    scopes: tuple[ScopeName, ...]
    since: float
    is_demanded: bool = False


@dataclass(frozen=True, slots=True)
class Queue:
    """Who may begin, and who waits: in the order in which they will, each with the full limit."""

    admitted: tuple[Waiter, ...]
    waiting: tuple[tuple[Waiter, ScopeName], ...]

    def find(self, key: Key) -> tuple[int, ScopeName] | None:
        """How many go before the transfer, and which limit it waits for; None: it may begin."""
        for number, (waiter, scope) in enumerate(self.waiting):
            if waiter.key == key:
                return number, scope
        return None


def list_queue(
    scopes: Scopes,
    readers: Iterable[Reader],
    waiters: Iterable[Waiter],
    strangers: Mapping[ScopeName, frozenset[str]] | None = None,
) -> Queue:
    """Demanded models first; then the model that fewest nodes read; then who waits longest.

    `strangers`: nodes that read without a lease. Nobody overtakes in a full limit, so each gets its
    turn when others end. The first that waits for a full limit keeps its place in the other limits
    it is under; else those behind it would take that again and again.
    """
    readers = tuple(readers)
    taken = _take_stock(scopes, readers, strangers or {})
    spread = Counter(reader.key[0] for reader in readers)
    heap = _group(waiters, spread)
    closed: set[ScopeName] = set()
    admitted: list[Waiter] = []
    waiting: list[tuple[Waiter, ScopeName]] = []
    while heap:
        rank, count, _, uid, line = heapq.heappop(heap)
        waiter = line.popleft()
        node = waiter.key[1]
        under = [name for name in waiter.scopes if name in taken]
        full = [name for name in under if name in closed or taken[name].is_full(node)]
        if not full:
            admitted.append(waiter)
            count += 1
        else:
            waiting.append((waiter, full[0]))
        if not full or not closed.issuperset(full):
            for name in under:
                if name not in full:
                    taken[name].add(node)
        closed.update(full)
        if line:
            heapq.heappush(heap, (rank, count, line[0].since, uid, line))
    return Queue(tuple(admitted), tuple(waiting))


def share_bandwidth(scope: Scope, readers: Iterable[Reader | Waiter]) -> Mapping[Key, int]:
    """Bytes a second for each, in sum at most the limit: equal between models, then their nodes."""
    rate = scope.bytes_per_second
    by_model: defaultdict[tuple[str, bool], list[Key]] = defaultdict(list)
    for reader in readers:
        by_model[(reader.key[0], reader.is_demanded)].append(reader.key)
    count = sum(map(len, by_model.values()))
    if rate is None or not count:
        return {}
    least = min(LEAST_RATE, rate // count)
    weights = {model: _DEMAND_WEIGHT if model[1] else 1 for model in by_model}
    rest, whole = rate - least * count, sum(weights.values())
    return {
        key: least + rest * weights[model] // (whole * len(keys))
        for model, keys in by_model.items()
        for key in keys
    }


def choose_rate(
    scopes: Scopes,
    readers: Sequence[Reader],
    admitted: Sequence[Waiter],
    asking: Reader | Waiter,
    *,
    keeps_to: int | None = None,
    may_rise: bool = True,
) -> int | None:
    """The rate for the transfer that asks; None: no limit on bandwidth; 0: there is none left yet.

    `keeps_to`: the rate that a reader keeps to now. It may always be given less. It is given more
    only out of what nobody else may still use: others give up theirs when they ask next. A reader
    that kept to none, because the limit is new, gets the least at least.
    """
    rates: list[int] = []
    for name in asking.scopes:
        scope = scopes.get(name)
        if scope is None or scope.bytes_per_second is None:
            continue
        others = [r for r in readers if name in r.scopes and r.key != asking.key]
        coming = [w for w in admitted if name in w.scopes and w.key != asking.key]
        target = share_bandwidth(scope, (*others, *coming, asking))[asking.key]
        left = scope.bytes_per_second - sum(r.bytes_per_second or 0 for r in others)
        has = keeps_to or 0
        rates.append(min(target, max(has, left if may_rise else 0)))
    if not rates:
        return None
    rate = min(rates)
    if isinstance(asking, Waiter):
        return rate if rate >= LEAST_RATE else 0
    return rate if keeps_to else max(rate, LEAST_RATE)


def choose_pause(ahead: int, interval_seconds: float) -> float:
    """Seconds until a waiting transfer asks again: the first in line often, the others seldom."""
    return interval_seconds * min(1.5, max(0.2, ahead / 10))


def describe_wait(name: ScopeName, nodes: int, ahead: int) -> str:
    """Who is ahead, so coarsely that statuses are not rewritten whenever the queue moves."""
    read = "1 node reads" if nodes == 1 else f"{nodes} nodes read"
    most = next((step for step in _COARSE if ahead <= step), _COARSE[-1])
    before = f"up to {most} go" if most > 1 else "one other goes" if most else "no other goes"
    allowed = f"which is what limits.{name.kind}s allows"
    return f"{read} {name} now, {allowed}, and {before} before this one"


@dataclass(slots=True)
class _Taken:
    scope: Scope
    nodes: set[str] = field(default_factory=set)
    transfers: int = 0

    def add(self, node: str) -> None:
        self.nodes.add(node)
        self.transfers += 1

    def is_full(self, node: str) -> bool:
        most_nodes, most = self.scope.max_nodes, self.scope.max_transfers
        if most is not None and self.transfers >= most:
            return True
        return most_nodes is not None and node not in self.nodes and len(self.nodes) >= most_nodes


def _take_stock(
    scopes: Scopes, readers: Iterable[Reader], strangers: Mapping[ScopeName, frozenset[str]]
) -> dict[ScopeName, _Taken]:
    taken = {name: _Taken(scope) for name, scope in scopes.items()}
    for name, stock in taken.items():
        stock.nodes.update(strangers.get(name, ()))
    for reader in readers:
        for name in reader.scopes:
            if name in taken:
                taken[name].add(reader.key[1])
    return taken


_Line = tuple[bool, int, float, str, deque[Waiter]]


def _group(waiters: Iterable[Waiter], spread: Mapping[str, int]) -> list[_Line]:
    """One line for each model and origin; the heads are compared."""
    lines: defaultdict[tuple[bool, str], deque[Waiter]] = defaultdict(deque)
    for waiter in sorted(waiters, key=lambda waiter: (waiter.since, waiter.key)):
        lines[(not waiter.is_demanded, waiter.key[0])].append(waiter)
    heap = [
        (rank, spread.get(uid, 0), line[0].since, uid, line) for (rank, uid), line in lines.items()
    ]
    heapq.heapify(heap)
    return heap
