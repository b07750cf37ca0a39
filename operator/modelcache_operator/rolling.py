"""What is beside the stable version of one ModelCache: its canary, and versions that are held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from modelcache_api.names import Reason
from modelcache_api.v1alpha1.rollout import HeldVersion
from modelcache_operator.assignments import Assignment, Beside
from modelcache_operator.decide.cache_status import judge_canary_version
from modelcache_operator.decide.canary import CanaryWish, place_canary
from modelcache_operator.decide.canary_pods import count_canary_pods
from modelcache_operator.decide.holding import Successor, hold, keep_newest, report_held
from modelcache_operator.decide.promql_gate import find_asked_gate, judge_gate
from modelcache_operator.decide.quota_placement import limit_canary
from modelcache_operator.decide.rollout import (
    Ages,
    CanaryCopies,
    GateOpinion,
    RolloutFacts,
    RolloutVerdict,
    Trouble,
    deadline_seconds,
    decide_rollout,
    has_ended,
    hold_seconds,
)
from modelcache_operator.decide.route import judge_verdict
from modelcache_operator.decide.world import ModelCacheView, ModelVersionView, NodeName, Uid
from modelcache_operator.held_version import (
    find_canary_weight,
    find_held_canary,
    find_named_canary,
    may_be_held,
)
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.quotas import Quotas
from modelcache_operator.stored_times import StoredTimes
from modelcache_operator.turning import turn

NO_COPIES: Final = CanaryCopies(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Roller:
    """Gathers what the decisions need; none of its methods waits."""

    world: ObservedWorld
    memory: Memory
    clock: Clock
    times: StoredTimes
    quotas: Quotas

    def turn(
        self, cache: ModelCacheView, stable: ModelVersionView | None, before: Assignment
    ) -> Assignment:
        """The versions in the parts that the spec gives them, and of held ones what stays."""
        canary = find_held_canary(cache.key, self.world)
        turned = turn(before, stable.uid if stable else None, canary.uid if canary else None)
        old = frozenset(one.version for one in before.held)
        return self.hold(cache, turned, known=old)

    def is_under_way(self, cache: ModelCacheView, assignment: Assignment) -> bool:
        """True while a canary is on nodes and its rollout has not ended."""
        canary = assignment.canary
        return (
            canary is not None
            and bool(canary.nodes)
            and not has_ended(cache.spec, cache.status.rollout, canary.version)
        )

    def hold(
        self, cache: ModelCacheView, one: Assignment, *, known: frozenset[Uid] | None = None
    ) -> Assignment:
        """The same with those held copies alone that stay. `known` were held before already."""
        if not one.held:
            return one
        books = self.memory.books.all()
        remaining = {beside.version: self._remaining(cache, beside.version) for beside in one.held}
        ends = ((remaining[uid], uid) for uid in remaining if self._may_be_held(uid))
        live = [books[name] for name in one.nodes if name in books and books[name].has_live_agent]
        ready = sum(book.has_verified(one.version) for book in live)
        healthy = ready >= max(len(live), cache.spec.placement.min_ready)
        successor = Successor(one.version if one.nodes else None, one.nodes, healthy)
        newest, held = keep_newest(ends), []
        for beside in one.held:
            if beside.version not in newest:
                continue
            copies = hold(
                beside.version,
                beside.nodes,
                successor,
                books,
                is_new=known is not None and beside.version not in known,
                remaining_seconds=remaining[beside.version],
                drain_seconds=deadline_seconds(cache.spec),
            )
            if copies.nodes:
                held.append(Beside(beside.version, copies.nodes, copies.evictable))
        return replace(one, held=tuple(held))

    def place_canary(
        self, cache: ModelCacheView, one: Assignment
    ) -> tuple[Assignment, CanaryCopies]:
        """The same with the canary where it belongs, and what its copies look like."""
        version = find_held_canary(cache.key, self.world)
        if version is None or one.canary is None:
            return replace(one, canary=None), NO_COPIES
        ended = has_ended(cache.spec, cache.status.rollout, version.uid)
        wish = CanaryWish(
            cache=cache.uid,
            spec=cache.spec,
            version=version.uid,
            size_bytes=version.status.size_bytes or 0,
            stable_version=one.version,
            stable=one.nodes,
            slower=one.slower,
            present=one.canary.nodes,
            weight=find_canary_weight(cache, version.uid),
            has_ended=ended,
        )
        account = self.quotas.account(cache, version.uid, is_canary=True)
        books = self.memory.books.all()
        plan = place_canary(wish, books)
        plan = limit_canary(account, plan, one.canary.nodes, version.uid, books)
        beside = Beside(version.uid, plan.nodes, plan.nodes if ended else frozenset())
        return replace(one, canary=beside), plan.copies

    def decide(
        self, cache: ModelCacheView, copies: CanaryCopies, stable_ready: int, *, has_stable: bool
    ) -> RolloutVerdict | None:
        """The weight of the canary; None without one."""
        if cache.spec.canary is None:
            return None
        named, stored = find_named_canary(cache, self.world), cache.status.rollout
        refusal = judge_canary_version(cache.spec.canary.model_version, named)
        if refusal is None and not has_stable:
            message = "there is no stable version on the nodes yet: the canary comes beside it"
            refusal = Trouble(Reason.STABLE_NOT_READY, message)
        uid = named.uid if named is not None and refusal is None else None
        started_at, moved_at = (stored.started_at, stored.moved_at) if stored else (None, None)
        facts = RolloutFacts(
            spec=cache.spec,
            stored=stored,
            stored_weight=find_canary_weight(cache, Uid(stored.canary_uid)) if stored else 0,
            canary=uid,
            refusal=refusal,
            copies=copies,
            pods=count_canary_pods(self.world.pods_of(cache.key), uid, self.world.cache_node),
            stable_ready=stable_ready,
            ages=Ages(
                self.times.age(cache.key, "start of the canary", started_at),
                self.times.age(cache.key, "last step", moved_at),
            ),
            route=self._judge_route(cache),
            is_route_due=self.memory.traffic.is_route_due(cache),
            gate=self._judge_gate(cache),
        )
        return decide_rollout(facts, self.clock.now())

    def report(self, cache: ModelCacheView, one: Assignment) -> tuple[HeldVersion, ...]:
        """The rows of the status."""
        if not one.held:
            return ()
        stored = {Uid(row.uid): row for row in cache.status.held}
        books = self.memory.books.all()
        until = self.clock.now() + timedelta(seconds=int(hold_seconds(cache.spec)))
        names = {track.uid: track.model_version for track in cache.status.tracks}
        rows = []
        for beside in one.held:
            version = self.world.model_version(beside.version)
            known = HeldVersion(
                uid=beside.version,
                model_version=version.key.name if version else names.get(beside.version),
                digest=self._digest(version, beside.version, beside.nodes),
                until=until,
            )
            there = (books[name] for name in sorted(beside.nodes) if name in books)
            rows.append(report_held(beside.version, there, known, stored.get(beside.version)))
        return tuple(rows)

    def look_again(self, cache: ModelCacheView, one: Assignment) -> float | None:
        """Seconds until the next hold may end, or the wait for pods that still use it."""
        ends = [self._remaining(cache, beside.version) for beside in one.held]
        left = [*ends, *(seconds + deadline_seconds(cache.spec) for seconds in ends)]
        return min((seconds for seconds in left if seconds > 0), default=None)

    def _remaining(self, cache: ModelCacheView, version: Uid) -> float:
        limit = hold_seconds(cache.spec)
        stored = next((row for row in cache.status.held if row.uid == version), None)
        if stored is None:
            return limit
        return self.times.remaining(cache.key, f"end of the hold of {version}", stored.until, limit)

    def _may_be_held(self, uid: Uid) -> bool:
        """Bytes outlive their ModelVersion, unless it says that they are wrong."""
        version = self.world.model_version(uid)
        return version is None or may_be_held(version)

    def _digest(
        self, version: ModelVersionView | None, uid: Uid, nodes: Iterable[NodeName]
    ) -> str | None:
        if version is not None:
            return version.status.content_digest
        for name in sorted(nodes):
            cache_node = self.world.cache_node(name)
            entry = cache_node.spec.find_entry(uid) if cache_node is not None else None
            if entry is not None and entry.content_digest is not None:
                return entry.content_digest
        return None

    def _judge_route(self, cache: ModelCacheView) -> Trouble | None:
        if cache.spec.rollout is None or cache.spec.rollout.http_route_ref is None:
            return None
        return judge_verdict(self.memory.traffic.verdict_of(cache))

    def _judge_gate(self, cache: ModelCacheView) -> GateOpinion:
        gate = find_asked_gate(cache.spec, cache.status.rollout)
        now = self.clock.monotonic()
        moved_at = cache.status.rollout.moved_at if cache.status.rollout else None
        since = self.times.age(cache.key, "last step", moved_at) if moved_at else None
        return judge_gate(gate, self.memory.traffic.measured(cache.key, now), since)
