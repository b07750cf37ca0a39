"""Loads, attaches and evictions, counted in fixed words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders import make_entry_spec
from fakes.agent_world import a_held, a_world, an_entry, digest_of, source_of
from modelcache_agent.adapters.prometheus import PrometheusMetrics
from modelcache_agent.decide.gpu.capacity import Budget
from modelcache_agent.decide.gpu.world import GpuView
from modelcache_agent.decide.history import NO_HISTORY, LoadCost
from modelcache_agent.decide.measures import Attach, EvictionCause, LoadSource, judge_attach
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.setbacks import Setback
from modelcache_agent.decide.watermarks import Pressure
from modelcache_agent.fetch import FetchCounters
from modelcache_agent.fetch.egress import PEERS, EgressBook
from modelcache_agent.memory import Memory
from modelcache_agent.ports.cluster import CacheNodeView
from modelcache_api.limits import MAX_ENTRIES_PER_NODE
from modelcache_api.names import EntryOrigin, Reason, Tier
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheNodeStatus

GIB = 1 << 30


def scrape(metrics) -> dict:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def judge(*, asked_at, wanted=Tier.DISK, held_in=Tier.DISK, load=None) -> Attach:
    history = replace(NO_HISTORY, arrived=100.0)
    if load is not None:
        history = replace(history, load=load)
    return judge_attach(
        history, asked_at=asked_at, now=103.0, size_bytes=GIB, wanted=wanted, held_in=held_in
    )


@pytest.mark.parametrize(
    ("asked_at", "wanted", "held_in", "expected"),
    [
        pytest.param(102, Tier.DISK, Tier.DISK, {Tier.DISK: True}, id="it was there"),
        pytest.param(99, Tier.DISK, Tier.DISK, {Tier.DISK: False}, id="it came for the pod"),
        pytest.param(
            102, Tier.HOST, Tier.DISK, {Tier.DISK: True, Tier.HOST: False}, id="on the disk only"
        ),
        pytest.param(
            102, Tier.HOST, Tier.HOST, {Tier.DISK: True, Tier.HOST: True}, id="in memory as well"
        ),
        pytest.param(
            102, Tier.DISK, Tier.HOST, {Tier.DISK: True}, id="in memory for somebody else's sake"
        ),
        pytest.param(
            99, Tier.GPU, Tier.GPU, dict.fromkeys(Tier, False), id="nothing was there in time"
        ),
    ],
)
def test_an_attach_is_a_hit_or_a_miss_in_each_tier_that_is_wanted(
    asked_at, wanted, held_in, expected
):
    assert dict(judge(asked_at=asked_at, wanted=wanted, held_in=held_in).list_tiers()) == expected


def test_hits_save_what_a_load_was_measured_to_take_and_misses_nothing():
    cost = LoadCost(2.0, 10.0 / GIB)
    assert judge(asked_at=101, load=cost).saved_seconds == pytest.approx(12.0)
    assert judge(asked_at=99, load=cost).saved_seconds == 0.0
    assert judge(asked_at=101).saved_seconds == 0.0, "nobody knows what a load takes"


def test_the_time_to_attach_is_never_negative_when_clocks_differ():
    assert judge(asked_at=101).seconds == 2.0
    assert judge(asked_at=104).seconds == 0.0


def test_attaches_are_counted_by_tier_and_result():
    metrics = PrometheusMetrics(FetchCounters)
    metrics.count_attach(judge(asked_at=101, wanted=Tier.HOST, load=LoadCost(3.0, 0.0)))
    metrics.count_attach(judge(asked_at=99))
    samples = scrape(metrics)
    found = {
        (dict(labels)["tier"], dict(labels)["result"]): value
        for (name, labels), value in samples.items()
        if name == "modelcache_agent_attaches_total" and value
    }
    assert found == {("disk", "hit"): 1, ("disk", "miss"): 1, ("host", "miss"): 1}
    hit_bytes = (("result", "hit"), ("tier", "disk"))
    assert samples["modelcache_agent_attached_bytes_total", hit_bytes] == GIB
    assert samples["modelcache_agent_saved_seconds_total", ()] == 3.0
    assert samples["modelcache_agent_attach_seconds_sum", (("result", "miss"),)] == 4.0


def test_loads_and_evictions_have_histograms():
    metrics = PrometheusMetrics(FetchCounters)
    metrics.count_load(Tier.DISK, LoadSource.PEERS, 7.0)
    metrics.count_labelled(0.3)
    metrics.count_eviction(Tier.HOST, EvictionCause.PRESSURE, 7200.0)
    samples = scrape(metrics)
    load = (("source", "peers"), ("tier", "disk"))
    assert samples["modelcache_agent_load_seconds_sum", load] == 7.0
    assert samples["modelcache_agent_load_seconds_bucket", (("le", "10.0"), *load)] == 1
    assert samples["modelcache_agent_load_seconds_bucket", (("le", "5.0"), *load)] == 0
    assert samples["modelcache_agent_label_seconds_count", ()] == 1
    gone = (("reason", "pressure"), ("tier", "host"))
    assert samples["modelcache_agent_evictions_total", gone] == 1
    assert samples["modelcache_agent_eviction_age_seconds_sum", (("tier", "host"),)] == 7200


def test_C44_all_of_it_is_a_bounded_number_of_series():
    metrics = PrometheusMetrics(FetchCounters)
    for tier in Tier:
        for source in LoadSource:
            metrics.count_load(tier, source, 1.0)
        for cause in EvictionCause:
            metrics.count_eviction(tier, cause, 1.0)
    for held_in in Tier:
        for asked_at in (99, 101):
            metrics.count_attach(judge(asked_at=asked_at, wanted=Tier.GPU, held_in=held_in))
    assert len(scrape(metrics)) < 400


def test_fragmentation_is_told_of_slabs_alone():
    metrics = PrometheusMetrics(FetchCounters)
    name = ("modelcache_agent_gpu_fragmentation_ratio", ())
    budget = Budget(10, 10, 0, is_shared_with_host=False, why="")
    metrics.observe_gpu(GpuView(budget=budget))
    assert name not in scrape(metrics)
    metrics.observe_gpu(GpuView(budget=replace(budget, fragmentation=0.25)))
    assert scrape(metrics)[name] == 0.25


def test_the_first_eviction_is_a_step_from_zero():
    series = ("modelcache_agent_evictions_total", (("reason", "room"), ("tier", "disk")))
    assert scrape(PrometheusMetrics(FetchCounters))[series] == 0


def test_the_first_digest_mismatch_is_a_step_from_zero():
    series = ("modelcache_agent_failures_total", (("reason", "DigestMismatch"),))
    assert scrape(PrometheusMetrics(FetchCounters))[series] == 0


def test_requests_to_the_api_server_are_told_by_verb_resource_and_code():
    metrics = PrometheusMetrics(
        FetchCounters, api_requests=lambda: {("watch", "cachenodes", "200"): 2}
    )
    labels = (("code", "200"), ("resource", "cachenodes"), ("verb", "watch"))
    assert scrape(metrics)["modelcache_agent_api_requests_total", labels] == 2


def test_the_certificates_end_is_told_once_there_is_one():
    name = ("modelcache_agent_certificate_expiry_timestamp_seconds", ())
    assert name not in scrape(PrometheusMetrics(FetchCounters))
    metrics = PrometheusMetrics(FetchCounters, certificate_expires_at=lambda: 1e9)
    assert scrape(metrics)[name] == 1e9


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        pytest.param((), LoadSource.HERE, id="nothing had to come"),
        pytest.param((PEERS,), LoadSource.PEERS, id="other nodes"),
        pytest.param(("https://s3",), LoadSource.ORIGIN, id="the source"),
        pytest.param(("https://s3", PEERS), LoadSource.MIXED, id="both"),
    ],
)
def test_a_transfer_tells_where_its_bytes_came_from(sources, expected):
    book = EgressBook()
    for source in sources:
        book.add("v1", "team", source, 5)
    book.add("v2", "team", "https://s3", 5)
    assert book.take_source("v1") is expected
    assert book.take_source("v1") is LoadSource.HERE, "each transfer is asked of once"


def test_a_load_began_with_its_first_try_and_the_next_one_anew():
    book = EgressBook()
    assert book.begin("v1", 10.0) == 10.0
    assert book.begin("v1", 50.0) == 10.0, "the first try failed"
    assert book.begin("v2", 60.0) == 60.0
    book.take_source("v1")
    assert book.begin("v1", 70.0) == 70.0
    book.keep(frozenset({"v1"}), frozenset({"v1"}))
    assert book.begin("v1", 80.0) == 70.0, "it is still tried"
    assert book.begin("v2", 80.0) == 80.0, "it was not wanted any more"


HELD = {"origin": EntryOrigin.HOLD, "label_key": None, "evictable": True}
FAILED = Setback(Reason.THROTTLED, "", 1010.0, 1, source_of("v1"), digest_of("v1"))


@pytest.mark.parametrize(
    ("spec", "node", "began"),
    [
        pytest.param({}, {}, 10.0, id="it is tried again"),
        pytest.param({}, {"setbacks": {"v1": FAILED}}, 10.0, id="the pause after a failure"),
        pytest.param({}, {"max_models": 0}, 10.0, id="others have their turn"),
        pytest.param({"over_quota": True}, {}, 500.0, id="beyond its quota"),
        pytest.param(HELD, {}, 500.0, id="only held"),
        pytest.param({}, {"evicted": frozenset({"v1"})}, 500.0, id="given up"),
        pytest.param({}, {"pressure": Pressure(5, 10, "it is full")}, 500.0, id="disk pressure"),
        pytest.param({}, {"free_bytes": 0}, 500.0, id="no room"),
        pytest.param({}, {"capacity": 5}, 500.0, id="never any room"),
        pytest.param({}, {"held": (a_held("v1"),)}, 500.0, id="it came with another version"),
    ],
)
def test_time_in_which_nobody_tried_is_no_part_of_a_load(spec, node, began):
    book = EgressBook()
    book.begin("v1", 10.0)
    world = a_world(an_entry("v1").model_copy(update=spec), **node)
    PrometheusMetrics(FetchCounters, book.keep).observe(
        make_plan(world).entries, world.ledger, world.free_bytes, 0
    )
    assert book.begin("v1", 500.0) == began


def test_bytes_of_what_is_not_wanted_any_more_are_no_transfers():
    book = EgressBook()
    book.add("v1", "team", PEERS, 5)
    book.keep(frozenset(), frozenset())
    assert book.take_source("v1") is LoadSource.HERE


def test_the_time_to_the_label_is_taken_once_and_for_what_came_now():
    digest = "sha256:" + "a" * 64
    entry = make_entry_spec(content_digest=digest, label_key="modelcache.io/v-a")
    spec = CacheNodeSpec(node_uid="n", entries=(entry,))
    memory = Memory(cache_node=CacheNodeView("cn", spec, CacheNodeStatus()))
    memory.note_published(digest, 10.0)
    assert memory.take_labelled(["modelcache.io/v-b"], 11.0) == []
    assert memory.take_labelled(["modelcache.io/v-a"], 12.5) == [2.5]
    assert memory.take_labelled(["modelcache.io/v-a"], 13.0) == [], "a label that was set again"


def test_what_is_never_labelled_is_forgotten():
    memory = Memory()
    for number in range(MAX_ENTRIES_PER_NODE + 5):
        memory.note_published(f"sha256:{number:064x}", float(number))
    assert len(memory.published_at) == MAX_ENTRIES_PER_NODE
