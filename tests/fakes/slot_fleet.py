"""Nodes that ask for slots in played time, over a network that loses questions and answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from builders import make_version
from fakes.seen_world import SeenWorld
from modelcache_api.names import EntryOrigin
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.v1alpha1.model_version import Source
from modelcache_api.wire import SlotAnswer, SlotQuery
from modelcache_operator.decide.fleet_limits import FleetLimits, ScopeName, find_scopes
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.world import NodeName, Uid
from modelcache_operator.slots import Slots


class SlotWorld(SeenWorld):
    """As the watch cache of the leader: it can list."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = self.cache_nodes
        self.cache_nodes = self.list_cache_nodes  # type: ignore[assignment]

    def list_cache_nodes(self):
        return tuple(self.listed.values())

    def add_node(self, name, uid, entries=()):
        self.cache_nodes = self.listed
        super().add_node(name, uid, entries)
        self.cache_nodes = self.list_cache_nodes

    def model_versions(self):
        return tuple(self.versions.values())


@dataclass
class Transfer:
    """One version on one node, as its agent sees it. Times are played seconds."""

    uid: str
    node: str
    namespace: str
    uri: str
    origin: EntryOrigin = EntryOrigin.PLACEMENT
    until: float = float("-inf")
    rate: int | None = None
    is_done: bool = False
    answer: SlotAnswer | None = None
    waits_since: float | None = None
    delayed: SlotQuery | None = None

    @property
    def entry(self) -> EntrySpec:
        return EntrySpec(
            uid=self.uid, source_digest="sha256:" + "a" * 64, size_bytes=9, origin=self.origin
        )


class SlotFleet:
    """`leaders` come and go; time stands still but for `pass_time`."""

    def __init__(self, limits: FleetLimits) -> None:
        self.limits = limits
        self.now = 1000.0
        self.world = SlotWorld()
        self.transfers: list[Transfer] = []
        self.elect()

    def elect(self) -> None:
        """The leader dies; its successor knows nothing."""
        self.leader = self.make_replica(leads=True)
        self.leader.begin_term()

    def make_replica(self, *, leads: bool) -> Slots:
        return Slots(
            self.world, lambda: self.limits, is_leader=lambda: leads, clock=lambda: self.now
        )

    def add(self, uid: str, node: str, *, namespace: str = "a", uri: str = "s3://b/m", **more):
        version = make_version(uid, uid=uid, namespace=namespace)
        spec = version.spec.model_copy(update={"source": Source(uri=uri)})
        self.world.versions[Uid(uid)] = replace(version, spec=spec)
        transfer = Transfer(uid, node, namespace, uri, **more)
        self.transfers.append(transfer)
        return transfer

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def holds(self, transfer: Transfer) -> bool:
        return transfer.until > self.now

    def ask(
        self,
        transfer: Transfer,
        *,
        replica: Slots | None = None,
        is_heard: bool = True,
        is_answered: bool = True,
        wants: bool = True,
    ) -> SlotAnswer | None:
        """One question; what is lost on the way changes nothing here."""
        self.now += 1e-6
        holds = self.holds(transfer)
        if wants and not holds and transfer.waits_since is None:
            transfer.waits_since = self.now
        query = SlotQuery(
            asked_at=self.now,
            wants=wants,
            holds=holds and wants,
            bytes_per_second=transfer.rate if holds and wants else None,
            waited_seconds=self.now - (transfer.waits_since or self.now),
        )
        if not wants:
            transfer.until, transfer.rate = float("-inf"), None
        if not is_heard:
            transfer.delayed = query
            return None
        caller = Caller(NodeName(transfer.node), Uid(transfer.node), "pod", "pod-uid")
        version = self.world.versions[Uid(transfer.uid)]
        answer = (replica or self.leader).ask(caller, transfer.entry, version, query)
        if not is_answered or not wants or (not answer.leads and holds):
            return answer
        transfer.answer = answer
        if answer.is_granted:
            forever = float("inf")
            transfer.until = self.now + (answer.lease_seconds if answer.is_limited else forever)
            transfer.rate, transfer.waits_since = answer.bytes_per_second, None
        else:
            transfer.until, transfer.rate = float("-inf"), None
        return answer

    def deliver_late(self, transfer: Transfer) -> None:
        """A question that was given up arrives after all; nobody waits for its answer."""
        if transfer.delayed is not None:
            caller = Caller(NodeName(transfer.node), Uid(transfer.node), "pod", "pod-uid")
            version = self.world.versions[Uid(transfer.uid)]
            self.leader.ask(caller, transfer.entry, version, transfer.delayed)
            transfer.delayed = None

    def finish(self, transfer: Transfer, *, is_heard: bool = True) -> None:
        self.ask(transfer, wants=False, is_heard=is_heard)
        transfer.is_done = True

    def reading(self, name: ScopeName) -> list[Transfer]:
        """Who may read under a limit now, by their own clocks."""
        return [t for t in self.transfers if self.holds(t) and name in self.scopes_of(t)]

    def scopes_of(self, transfer: Transfer) -> tuple[ScopeName, ...]:
        return find_scopes(self.limits, transfer.namespace, transfer.uri)
