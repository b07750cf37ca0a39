"""What nodes are told about slots, and what is counted. The invariants: tests/property/operator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import make_version
from fakes.seen_world import SeenWorld
from fakes.slot_fleet import SlotFleet
from modelcache_api.manifest import SourceFile, make_source_manifest
from modelcache_api.names import EntryOrigin, EntryState, Reason
from modelcache_api.v1alpha1.cache_node import CacheNodeStatus, EntrySpec, EntryStatus
from modelcache_api.wire import GrantQuery, GrantRequest, PeerQuery, SlotQuery, SlotRequest
from modelcache_operator.adapters.metrics import OperatorMetrics
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.decide.fleet_limits import parse_fleet_limits
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.world import NodeName, Uid
from modelcache_operator.grants import GrantService
from modelcache_operator.ports.sources import SignedFile, SignedPage

MIB = 1 << 20


def make_fleet(*, learnt=True, **bounds) -> SlotFleet:
    limits = {"sources": [{"prefix": "s3://b/", **bounds}]}
    fleet = SlotFleet(parse_fleet_limits(limits))
    if learnt:
        fleet.pass_time(fleet.limits.lease_seconds + 10)
    return fleet


def test_who_waits_is_told_how_many_read_and_about_how_many_go_before():
    fleet = make_fleet(maxNodes=2)
    for number in range(15):
        answer = fleet.ask(fleet.add("v1", f"n{number:02}"))
        fleet.pass_time(0.1)
        assert answer.is_granted is (number < 2)
        if number == 2:
            assert "2 nodes read s3://b/ now" in answer.message
            assert "no other goes before this one" in answer.message
            first = answer.ask_again_seconds
    assert "up to 100 go before this one" in answer.message
    assert first < answer.ask_again_seconds <= 1.5 * fleet.limits.renew_interval


def test_a_pods_model_goes_first_and_a_model_that_nobody_reads_before_another_copy():
    fleet = make_fleet(maxNodes=1)
    reading = fleet.add("v1", "n1")
    fleet.ask(reading)
    line = [
        fleet.add("v1", "n2"),
        fleet.add("v2", "n3"),
        fleet.add("v1", "n4", origin=EntryOrigin.DEMAND),
    ]
    for transfer in line:
        fleet.pass_time(1.0)
        fleet.ask(transfer)
    order = []
    for _ in line:
        fleet.finish(reading)
        fleet.pass_time(1.0)
        for transfer in line:
            if transfer not in order and fleet.ask(transfer).is_granted:
                order.append(transfer)
                reading = transfer
                break
    assert [transfer.node for transfer in order] == ["n4", "n2", "n3"]


def test_shares_follow_those_who_come_and_go_within_two_renewals():
    fleet = make_fleet(maxBandwidth=8 * MIB)
    one, other = fleet.add("v1", "n1"), fleet.add("v2", "n2")
    assert fleet.ask(one).bytes_per_second == 8 * MIB
    assert not fleet.ask(other).is_granted, "all is promised to the first"
    assert fleet.ask(one).bytes_per_second == 4 * MIB
    assert not fleet.ask(other).is_granted, "the answer may have been lost"
    fleet.ask(one)
    assert fleet.ask(other).bytes_per_second == 4 * MIB
    fleet.finish(one)
    assert fleet.ask(other).bytes_per_second == 8 * MIB


def test_a_new_leader_hears_first_who_reads_and_gives_nobody_more():
    fleet = make_fleet(maxNodes=2, maxBandwidth=8 * MIB)
    one, other, third = (fleet.add(f"v{n}", f"n{n}") for n in (1, 2, 3))
    for _ in range(3):
        fleet.ask(one)
        fleet.ask(other)
    assert {one.rate, other.rate} == {4 * MIB}
    fleet.elect()
    assert "learns first who reads" in fleet.ask(third).message
    assert fleet.ask(one).bytes_per_second == 4 * MIB
    fleet.pass_time(30)
    fleet.ask(one)
    fleet.ask(third)
    fleet.pass_time(20)
    assert fleet.ask(one).bytes_per_second == 4 * MIB, "the third is about to begin"
    assert fleet.ask(third).is_granted, "the other one has fallen silent"


def test_a_node_that_falls_silent_keeps_its_place_until_its_lease_must_have_run_out():
    fleet = make_fleet(maxNodes=1)
    silent, other = fleet.add("v1", "n1"), fleet.add("v1", "n2")
    fleet.ask(silent)
    fleet.pass_time(fleet.limits.lease_seconds - 0.1)
    assert not fleet.ask(other).is_granted
    fleet.pass_time(4.0)
    assert not fleet.ask(other).is_granted, "it may need a moment to hang up"
    fleet.pass_time(2.0)
    assert fleet.ask(other).is_granted


def test_a_node_that_claims_more_than_it_was_given_takes_nothing_from_others():
    fleet = make_fleet(maxBandwidth=8 * MIB)
    liar, other = fleet.add("v1", "n1"), fleet.add("v2", "n2")
    for _ in range(3):
        fleet.ask(liar)
        fleet.ask(other)
    liar.rate = 800 * MIB
    fleet.ask(liar)
    assert fleet.leader.list_use()[0].bytes_per_second == 8 * MIB
    assert fleet.ask(other).bytes_per_second == 4 * MIB


def test_a_replica_that_does_not_lead_says_so_and_takes_nothing_away():
    fleet = make_fleet(maxNodes=1)
    transfer = fleet.add("v1", "n1")
    fleet.ask(transfer)
    answer = fleet.ask(transfer, replica=fleet.make_replica(leads=False))
    assert (answer.leads, answer.is_granted) == (False, False)
    assert fleet.holds(transfer)
    assert fleet.leader.list_use()[0].readers == 1


def test_nodes_that_fetch_by_their_status_and_never_asked_take_places():
    fleet = make_fleet(maxNodes=1)
    newcomer = fleet.add("v1", "n1")
    fleet.world.add_node("old", "old")
    entry = EntryStatus(uid="v1", state=EntryState.DOWNLOADING)
    node = fleet.world.listed["old"]
    fleet.world.listed["old"] = replace(node, status=CacheNodeStatus(entries=(entry,)))
    assert "1 node reads" in fleet.ask(newcomer).message
    fleet.world.listed["old"] = node
    fleet.pass_time(2)
    assert fleet.ask(newcomer).is_granted


def test_a_limit_that_is_gone_or_never_was_holds_nobody():
    fleet = make_fleet(maxNodes=1)
    transfer = fleet.add("v1", "n1", uri="s3://elsewhere/m")
    assert not fleet.ask(transfer).is_limited


def test_a_limit_on_bandwidth_that_is_set_while_nodes_read_reaches_them():
    fleet = make_fleet(maxNodes=2)
    transfer = fleet.add("v1", "n1")
    assert fleet.ask(transfer).bytes_per_second is None
    limits = {"sources": [{"prefix": "s3://b/", "maxBandwidth": "1Mi"}]}
    fleet.limits = parse_fleet_limits(limits)
    assert fleet.ask(transfer).bytes_per_second == MIB


def test_metrics_have_one_series_for_each_limit_of_the_leader():
    fleet = make_fleet(maxNodes=1, maxBandwidth=4 * MIB)
    fleet.ask(fleet.add("v1", "n1"))
    fleet.ask(fleet.add("v1", "n2"))
    text = OperatorMetrics(WatchCache(), lambda: True, fleet.leader.list_use).render().decode()
    labels = '{limit="source",name="s3://b/"}'
    assert f"modelcache_limit_readers{labels} 1.0" in text
    assert f"modelcache_limit_waiting{labels} 1.0" in text
    assert f"modelcache_limit_bytes_per_second{labels} {float(4 * MIB)}" in text.replace(
        "4.194304e+06", "4194304.0"
    )
    fleet.leader.end_term()
    text = OperatorMetrics(WatchCache(), lambda: True, fleet.leader.list_use).render().decode()
    assert "modelcache_limit_readers{" not in text


SOURCE = make_source_manifest([SourceFile("model.bin", 9, etag='"e"')])


class Manifests:
    async def get_source(self, uid, digest):
        return SOURCE

    async def get_content(self, uid):
        return None


class Signer:
    async def sign(self, version, files, revision):
        return SignedPage(tuple(SignedFile(f.path, "https://s/x", (), 0.0) for f in files))


class Door:
    """The grant service over one entry on two nodes, with slots for one."""

    def __init__(self, peering=None):
        self.fleet = make_fleet(maxNodes=1)
        self.world = SeenWorld()
        entry = EntrySpec(uid="v1", source_digest=SOURCE.digest, size_bytes=9)
        for name in ("n1", "n2"):
            self.world.add_node(name, f"uid-{name}", [entry])
        version = make_version()
        source = version.spec.source.model_copy(update={"uri": "s3://b/m"})
        self.world.versions[Uid("v1")] = replace(
            version, spec=version.spec.model_copy(update={"source": source})
        )
        self.service = GrantService(
            self.world, Manifests(), Signer(), peering=peering, slots=self.fleet.leader
        )

    async def ask(self, name, **query):
        caller = Caller(NodeName(name), Uid(f"uid-{name}"), "pod", "pod-uid")
        request = GrantRequest(entries=(GrantQuery(uid="v1", **query),))
        return (await self.service.grant(caller, request)).grants[0]

    def slot(self, name, **query):
        caller = Caller(NodeName(name), Uid(f"uid-{name}"), "pod", "pod-uid")
        return self.service.answer_slot(caller, SlotRequest(uid="v1", slot=SlotQuery(**query)))


async def test_urls_go_to_who_has_a_slot_and_the_others_are_told_to_wait():
    door = Door()
    granted = await door.ask("n1", slot=SlotQuery())
    assert granted.files
    assert granted.slot.is_granted
    waiting = await door.ask("n2", slot=SlotQuery())
    assert waiting.must_wait
    assert not waiting.files
    assert "1 node reads" in waiting.slot.message
    page = await door.ask("n1", slot=SlotQuery(wants=False))
    assert page.files, "pages of what is fetched already cost no slot"
    assert door.slot("n1", holds=True).is_granted
    door.slot("n1", wants=False)
    assert (await door.ask("n2", slot=SlotQuery())).files


def test_a_question_that_was_overtaken_is_not_heeded():
    fleet = make_fleet(maxNodes=1)
    transfer, other = fleet.add("v1", "n1"), fleet.add("v1", "n2")
    fleet.ask(transfer, wants=False, is_heard=False)
    fleet.ask(transfer)
    fleet.deliver_late(transfer)
    assert not fleet.ask(other).is_granted, "what was given back before is held again"


async def test_an_agent_that_knows_no_limits_gets_nothing_that_one_covers():
    refused = await Door().ask("n1")
    assert refused.error.reason == Reason.THROTTLED
    assert "upgrade" in refused.error.message


async def test_of_an_entry_that_is_gone_a_slot_can_be_given_back():
    door = Door()
    await door.ask("n1", slot=SlotQuery())
    door.world.add_node("n1", "uid-n1", [])
    assert not door.slot("n1", holds=True).leads, "nothing is said of what it holds"
    door.slot("n1", wants=False)
    assert (await door.ask("n2", slot=SlotQuery())).files


class Peering:
    """Everybody is told to read the source, if it may."""

    def __init__(self):
        self.claimed = []

    def grant(self, caller, entry, query, content_digest, *, may_read):
        if may_read():
            self.claimed.append(caller.node)


@pytest.mark.parametrize("waited", [0.0, 60.0])
async def test_with_peers_nobody_waits_for_a_node_that_has_no_slot(waited):
    peering = Peering()
    door = Door(peering)
    for name in ("n1", "n2"):
        query = PeerQuery(waited_seconds=waited)
        grant = await door.ask(name, slot=SlotQuery(), peers=query)
        assert grant.must_wait is (name == "n2")
    assert peering.claimed == ["n1"]
