"""A rollout whose messages are lost and whose leaders die: the core in memory, agents by hand.

Every agent here does one thing at a time, when it is told to: it evicts, removes, begins to fetch
or ends, and its report may be lost. What must never happen is asserted where it would.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from builders import GIB, make_cache, make_cache_node, make_entry
from fakes.memory_core import MemoryCore, MemoryWorld
from modelcache_api.names import EntryOrigin, EntryState, Reason
from modelcache_api.v1alpha1.model_cache import ModelCacheSpec
from modelcache_operator.decide.world import NodeName, ObjectKey, Uid

C1 = ObjectKey("search", "c1")
VERSIONS = ("m1", "m2", "m3")
_MOST_STEPS = 5_000


class LostAnswerError(Exception):
    """A write of which the leader does not know whether it was done."""


class RolloutWorld(MemoryWorld):
    """`disk` is what nodes really hold: True where it is verified, False while it is fetched."""

    def __init__(self, nodes: int, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.disk: dict[str, dict[str, bool]] = {}
        self.damaged: set[tuple[str, str]] = set()
        # Bytes whose loss no leader has acted upon yet, and whether it has been reported.
        self.losses: dict[tuple[str, str], bool] = {}
        self.lose_next: str | None = None
        self.is_quiet = False
        self.removed_last: list[str] = []
        for number in range(nodes):
            self.add_node(f"n{number}")
            self.disk[f"n{number}"] = {}
        for name in VERSIONS:
            self.add_version(name)
        self.core = self._lead()

    # --- users, leaders and time ----------------------------------------------------------

    @property
    def wish(self) -> ModelCacheSpec:
        found = self.cache.model_cache(C1)
        assert found is not None
        return found.spec

    @property
    def status(self):
        found = self.cache.model_cache(C1)
        assert found is not None
        return found.status

    def change(self, **spec) -> None:
        found = self.cache.model_cache(C1)
        if found is None:
            self.show(make_cache("c1", version="m1", copies=len(self.disk)))
            return
        spec = found.spec.model_copy(update=spec)
        self.show(replace(found, spec=spec, generation=found.generation + 1))

    def kill_leader(self) -> None:
        self.core.end()
        self.core = self._lead()

    def _lead(self) -> MemoryCore:
        core = MemoryCore(self)
        core.memory.begin_term(self.cache)
        core.rechecker.begin_term()
        self.cache.subscribe(core.router.on_change)
        core.list_leases()
        core.router.look_at_everything()
        return core

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.renew_all()
        self.core.list_leases()
        self.core.router.look_at_everything()

    def work(self, keys: int) -> None:
        """The leader works off some of its keys, and is told of failures as its queue is."""
        asyncio.run(self._work(keys))

    async def _work(self, keys: int) -> None:
        core = self.core
        for _ in range(keys):
            if core.queue.keys:
                key = core.queue.pop()
                try:
                    await core.reconciler.reconcile(key)
                except LostAnswerError:
                    core.queue.add(key)
            elif core.resolve_queue.keys:
                await core.resolver.reconcile(core.resolve_queue.pop())
            elif core.recheck_queue.keys:
                await core.rechecker.reconcile(core.recheck_queue.pop())
            else:
                self.losses = {lost: told for lost, told in self.losses.items() if not told}
                return

    def settle(self) -> None:
        """Everything arrives, until nothing moves."""
        for _ in range(_MOST_STEPS):
            self.work(1_000)
            moved = [self.act(node) for node in self.disk]
            if not any(moved) and not self.core.queue.keys:
                return
        raise AssertionError("it never settles")

    # --- agents ---------------------------------------------------------------------------

    def agents_act(self) -> bool:
        return False

    def act(self, node: str, *, is_report_lost: bool = False) -> bool:
        """One thing; True if anything was done or told."""
        seen = self.cache.cache_node(NodeName(node))
        if seen is None:
            return False
        disk, entries = self.disk[node], seen.spec.entries
        did = self._tidy(node, {entry.uid for entry in entries}) or self._fetch(node, entries)
        if is_report_lost:
            return did
        self.losses |= dict.fromkeys((lost for lost in self.losses if lost[0] == node), True)
        reports = tuple(self._tell(node, entry) for entry in entries)
        tiers = make_cache_node(node, capacity=self.capacity).status.tiers
        status = seen.status.model_copy(update={"entries": reports, "tiers": tiers})
        assert len(disk) * GIB <= self.capacity
        if status != seen.status:
            self.show(replace(seen, status=status))
            return True
        return did

    def damage(self, node: str, uid: str) -> None:
        """The bytes turn out to be wrong, and are in quarantine."""
        self.lose_bytes(node, uid)
        self.damaged.add((node, uid))

    def lose_bytes(self, node: str, uid: str) -> None:
        """They are gone from the disk, and the agent begins anew."""
        if self.disk[node].pop(uid, None):
            self.losses[node, uid] = False

    def copies(self, uid: str) -> set[str]:
        return {node for node, disk in self.disk.items() if disk.get(uid)}

    def _tidy(self, node: str, wanted: set[str]) -> bool:
        disk = self.disk[node]
        for uid in sorted(disk.keys() - wanted):
            self._remove(node, uid)
            return True
        return False

    def _fetch(self, node: str, entries) -> bool:
        disk = self.disk[node]
        for entry in entries:
            if entry.origin is EntryOrigin.HOLD or (node, entry.uid) in self.damaged:
                continue
            if disk.get(entry.uid) is False:
                disk[entry.uid] = True
                return True
            if entry.uid in disk:
                continue
            if (len(disk) + 1) * GIB <= self.capacity:
                disk[entry.uid] = False
                return True
            for other in entries:
                if other.evictable and other.uid in disk:
                    self._remove(node, other.uid)
                    return True
        return False

    def _remove(self, node: str, uid: str) -> None:
        was_whole = self.disk[node].pop(uid)
        is_last = was_whole and not self.copies(uid) and uid in self._in_service()
        if is_last and all(lost[1] != uid for lost in self.losses):
            raise AssertionError(f"{node} gave up the last copy of {uid}, which takes traffic")

    def _in_service(self) -> set[str]:
        """What the stored status sends traffic to."""
        traffic = self.status.traffic
        taken = {"stable": 100} if traffic is None else traffic.model_dump()
        return {str(track.uid) for track in self.status.tracks if taken.get(track.name)}

    def _tell(self, node: str, entry):
        uid, has = entry.uid, self.disk[node].get(entry.uid)
        if has:
            return make_entry(uid, content_digest=self.manifests.adopt(Uid(uid)))
        if (node, uid) in self.damaged:
            return make_entry(uid, EntryState.FAILED, reason=Reason.DAMAGED)
        if entry.origin is EntryOrigin.HOLD:
            return make_entry(uid, EntryState.EVICTED, reason=Reason.EVICTED)
        return make_entry(uid, EntryState.PENDING if has is None else EntryState.DOWNLOADING)

    # --- the API server, which may lose a request or its answer ------------------------------

    async def put_cache_status(self, cache, status):
        weight = status.traffic.canary if status.traffic else 0
        if weight:
            assert status.rollout is not None
            assert self._seen(status.rollout.canary_uid), "traffic on what nobody is seen to hold"
            assert weight <= (cache.spec.canary.weight if cache.spec.canary else 0)
        return await self._write(super().put_cache_status(cache, status))

    async def put_cache_node(self, node, seen, spec):
        kept = [entry for entry in spec.entries if not entry.evictable]
        assert sum(entry.size_bytes for entry in kept) <= self.capacity, "more than there is room"
        canaries = {ref.canary_uid for ref in spec.caches if ref.canary_uid}
        assert len(canaries) <= 1
        return await self._write(super().put_cache_node(node, seen, spec))

    def _seen(self, uid: str) -> int:
        nodes = self.cache.cache_nodes()
        reports = (entry for node in nodes for entry in node.status.entries if entry.uid == uid)
        return sum(entry.state is EntryState.CACHED for entry in reports)

    async def _write(self, write):
        lose, self.lose_next = self.lose_next, None
        if lose == "request":
            write.close()
            raise LostAnswerError
        written = await write
        if lose == "answer":
            raise LostAnswerError
        return written
