from __future__ import annotations

import asyncio
import logging

import pytest

from builders import (
    EARLIER,
    make_cache,
    make_cache_node,
    make_condition,
    make_entry_spec,
    make_node,
    make_version,
)
from modelcache_api.log_fields import about
from modelcache_api.names import Condition
from modelcache_api.v1alpha1.model_cache import CopiesStatus, ModelCacheStatus
from modelcache_api.v1alpha1.rollout import HeldVersion, TrafficStatus
from modelcache_operator.adapters.api_health import ApiHealth
from modelcache_operator.adapters.events import KubeEvents
from modelcache_operator.adapters.metrics import OperatorMetrics
from modelcache_operator.adapters.parsing import (
    Observed,
    ObservedKind,
    parse_agent_lease,
    parse_object,
)
from modelcache_operator.adapters.token_bucket import TokenBucket
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.changes import Changed
from modelcache_operator.decide.events import EventNote, Regarding
from modelcache_operator.decide.world import ObjectKey, Uid
from modelcache_operator.logs import _NoRepeats, _OneLine

NODES, CACHES = ObservedKind.NODES, ObservedKind.MODEL_CACHES


DISK = {"name": "Disk", "capacityBytes": 9, "usedBytes": 1}
CACHED = {"uid": "v1", "state": "Cached"}


def seen(view, version, kind=NODES):
    key = getattr(view, "key", None) or ObjectKey("", view.name)
    return Observed(kind, key, view.uid, version, view)


class TestWatchCache:
    def setup_method(self):
        self.cache = WatchCache()
        self.told: list[Changed] = []
        self.cache.subscribe(self.told.append)

    def test_equal_views_are_told_once_however_often_the_object_changes(self):
        for version in range(1, 100):
            self.cache.observe(seen(make_node(), version))
        assert len(self.told) == 1
        assert self.cache.version_of(NODES, ObjectKey("", "n1")) == 99

    def test_which_nodes_have_an_entry_follows_their_specs(self):
        def observe(name, version, *uids):
            view = make_cache_node(name, wanted=[make_entry_spec(uid) for uid in uids])
            self.cache.observe(seen(view, version, ObservedKind.CACHE_NODES))
            return view

        def nodes(uid):
            return sorted(view.name for view in self.cache.nodes_of_entry(Uid(uid)))

        observe("n1", 1, "v1", "v2")
        gone = observe("n2", 1, "v1")
        assert (nodes("v1"), nodes("v2"), nodes("v3")) == (["n1", "n2"], ["n1"], [])
        observe("n1", 2, "v2")
        self.cache.forget(ObservedKind.CACHE_NODES, ObjectKey("", "n2"), gone.uid)
        assert (nodes("v1"), nodes("v2")) == ([], ["n1"])

    def test_older_news_never_replace_newer(self):
        newer, older = make_node(labels={"a": "new"}), make_node(labels={"a": "old"})
        self.cache.observe(seen(newer, 5))
        self.cache.observe(seen(older, 4))
        assert self.cache.node("n1") == newer
        assert len(self.told) == 1

    def test_an_answer_to_our_own_write_does_not_raise_the_dead(self):
        node = make_node()
        self.cache.observe(seen(node, 1))
        self.cache.forget(NODES, ObjectKey("", "n1"), node.uid)
        self.cache.observe(seen(node, 2))
        assert self.cache.node("n1") is None

    def test_a_successor_of_the_same_name_is_another_object(self):
        from dataclasses import replace

        first = make_node()
        second = replace(first, uid=Uid("second"))
        self.cache.observe(seen(first, 1))
        self.cache.observe(seen(second, 2))
        assert [change.new is None for change in self.told] == [False, True, False]
        self.cache.forget(NODES, ObjectKey("", "n1"), first.uid)
        assert self.cache.node("n1") == second

    def test_what_vanishes_from_a_list_is_forgotten_but_not_what_came_meanwhile(self):
        for name in ("n1", "n2"):
            self.cache.observe(seen(make_node(name), 1))
        before = self.cache.snapshot(NODES)
        self.cache.observe(seen(make_node("n3"), 2))
        listed = {(ObjectKey("", "n2"), Uid("uid-n2"))}
        assert self.cache.take_list(NODES, before, listed) == 1
        assert {node.name for node in self.cache.nodes()} == {"n2", "n3"}

    def test_what_cannot_be_read_any_more_is_gone_to_listeners_and_yet_there(self):
        node, key = make_node(), ObjectKey("", "n1")
        self.cache.observe(seen(node, 1))
        self.cache.observe(Observed(NODES, key, node.uid, 2, None, "strange"))
        assert self.cache.node("n1") is None
        assert self.cache.unreadable.nodes == {"n1"}
        assert self.told[-1] == Changed(node, None)
        assert self.cache.snapshot(NODES) == {key: node.uid}
        self.cache.observe(seen(node, 3))
        assert self.cache.node("n1") == node
        assert self.cache.unreadable.nodes == frozenset()

    def test_what_is_deleted_while_it_cannot_be_read_is_gone(self):
        key = ObjectKey("", "n1")
        self.cache.observe(Observed(NODES, key, Uid("u"), 2, None, "strange"))
        self.cache.forget(NODES, key, Uid("u"))
        assert self.cache.unreadable.nodes == frozenset()
        assert self.told == []

    def test_it_is_synced_once_every_kind_has_been_listed(self):
        for kind in ObservedKind:
            assert not self.cache.is_synced
            self.cache.take_list(kind, {}, set())
        assert self.cache.is_synced

    def test_a_listener_that_fails_keeps_nothing_from_the_others(self):
        def fail(_):
            raise ValueError("bug")

        self.cache._listeners.insert(0, fail)
        self.cache.observe(seen(make_node(), 1))
        assert len(self.told) == 1

    def test_caches_are_found_by_the_version_that_they_name(self):
        self.cache.observe(seen(make_cache("c1", version="m1"), 1, CACHES))
        self.cache.observe(seen(make_cache("c2", version="m1"), 2, CACHES))
        assert set(self.cache.caches_of_version(ObjectKey("search", "m1"))) == {
            ObjectKey("search", "c1"),
            ObjectKey("search", "c2"),
        }
        self.cache.observe(seen(make_cache("c1", version="m2"), 3, CACHES))
        self.cache.forget(CACHES, ObjectKey("search", "c2"), make_cache("c2").uid)
        assert self.cache.caches_of_version(ObjectKey("search", "m1")) == ()
        assert self.cache.caches_of_version(ObjectKey("search", "m2")) == (
            ObjectKey("search", "c1"),
        )


class TestParsing:
    def test_a_node_is_trimmed_so_that_heartbeats_compare_equal(self):
        def raw(beat: str, version: str):
            return {
                "metadata": {"name": "n1", "uid": "u", "resourceVersion": version},
                "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}],
                    "images": [{"names": ["x"]}],
                },
            }

        first, second = (parse_object(NODES, raw(f"t{n}", str(n))) for n in (1, 2))
        assert first.view == second.view
        assert first.version < second.version
        assert first.view.is_ready
        assert not first.view.has_disk_pressure

    @pytest.mark.parametrize("status", ["True", "False", "Unknown"])
    def test_C54_the_kubelets_disk_pressure_is_seen(self, status):
        conditions = [{"type": "DiskPressure", "status": status}]
        raw = {"metadata": {"name": "n1", "uid": "u"}, "status": {"conditions": conditions}}
        assert parse_object(NODES, raw).view.has_disk_pressure is (status == "True")

    def test_what_breaks_the_schema_is_there_and_unreadable(self):
        raw = {"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": {}}
        seen = parse_object(CACHES, raw)
        assert (seen.key, seen.uid, seen.view) == (ObjectKey("n", "c"), "u", None)
        assert "stable" in seen.problem

    @pytest.mark.parametrize(
        "status",
        [
            pytest.param({"tiers": [{"name": "Host", "capacityBytes": 1}, DISK]}, id="a tier"),
            pytest.param(
                {"tiers": [DISK], "entries": [{"uid": "v2", "state": "Loading"}, CACHED]},
                id="a state",
            ),
            pytest.param({"tiers": [DISK], "agentVersion": {"major": 2}}, id="a field's type"),
            pytest.param(
                {"tiers": [DISK], "conditions": [{"type": "Warm", "status": "Perhaps"}]},
                id="a condition",
            ),
            pytest.param({"tiers": [DISK, *[DISK] * 3]}, id="more rows than we know"),
        ],
    )
    def test_of_a_newer_agents_report_the_known_rows_are_read(self, status):
        raw = {
            "metadata": {"name": "n1", "uid": "u"},
            "spec": {"nodeUid": "uid-n1"},
            "status": {"entries": [CACHED], **status},
        }
        view = parse_object(ObservedKind.CACHE_NODES, raw).view
        assert view.status.tiers[0].name == "Disk"
        assert [entry.uid for entry in view.status.entries] == ["v1"]

    def test_what_nodes_are_told_and_say_alike_is_in_memory_once(self):
        told = {"uid": "v1", "sourceDigest": "sha256:" + "a" * 64, "sizeBytes": 1}
        ref = {"namespace": "search", "name": "c1", "stableUid": "v1"}

        def view(name: str, **more: object):
            raw = {
                "metadata": {"name": name, "uid": f"cn-{name}"},
                "spec": {"nodeUid": f"uid-{name}", "entries": [told | more], "caches": [ref]},
                "status": {"entries": [CACHED]},
            }
            return parse_object(ObservedKind.CACHE_NODES, raw).view

        one, two, third = view("n1"), view("n2"), view("n3", evictable=True)
        assert one.spec.entries[0] is two.spec.entries[0]
        assert one.spec.caches[0] is two.spec.caches[0]
        assert one.status.entries[0] is two.status.entries[0]
        assert third.spec.entries[0].evictable
        assert not one.spec.entries[0].evictable

    def test_an_agents_lease(self):
        raw = {
            "metadata": {
                "name": "modelcache-agent-n1",
                "ownerReferences": [{"kind": "Node", "name": "n1", "uid": "uid-n1"}],
            },
            "spec": {"renewTime": "2026-01-31T12:00:00.000000Z"},
        }
        lease = parse_agent_lease(raw)
        assert (lease.node, lease.node_uid) == ("n1", "uid-n1")
        for broken in (
            {**raw, "spec": {}},
            {**raw, "metadata": {"name": "modelcache-agent-n1"}},
            {**raw, "metadata": {**raw["metadata"], "name": "other"}},
        ):
            assert parse_agent_lease(broken) is None


class TestApiHealth:
    def setup_method(self):
        self.now = 0.0
        self.returns = 0
        self.health = ApiHealth(lambda: self.now, self.count, longest_pause_seconds=60)

    def count(self):
        self.returns += 1

    def at(self, seconds, code):
        self.now = seconds
        self.health.note(code)

    def test_silence_is_counted_from_the_last_answer(self):
        self.at(10, 200)
        self.at(50, 0)
        self.now = 60
        assert self.health.silent_seconds == 50
        self.at(61, 404)
        assert self.health.silent_seconds == 0

    def test_refusals_of_our_credentials_are_silence(self):
        self.at(10, 200)
        self.at(20, 401)
        self.at(30, 403)
        assert self.health.silent_seconds == 20

    def test_a_return_is_told_once_after_an_outage_and_not_after_a_hiccup(self):
        self.at(10, 0)
        self.at(11, 200)
        assert self.returns == 0
        self.at(20, 503)
        self.at(30, 0)
        self.at(40, 200)
        self.at(41, 200)
        assert self.returns == 1

    def test_a_long_pause_is_an_outage_although_nothing_failed(self):
        self.at(10, 200)
        self.at(69, 200)
        assert self.returns == 0
        self.at(130, 200)
        self.at(131, 200)
        assert self.returns == 1


class Poster:
    def __init__(self):
        self.posted = []

    async def post_event(self, event):
        self.posted.append(event)


class TestEvents:
    def setup_method(self):
        self.now = 0.0
        self.kube = Poster()

    async def publish(self, *steps):
        """Publish at these times, then let everything be sent."""
        events = KubeEvents(self.kube, instance="op", monotonic=lambda: self.now)
        for at, note in steps:
            self.now = at
            events.publish([note])
        task = asyncio.create_task(events.run())
        await asyncio.sleep(0.05)
        task.cancel()
        return [(event.reason, event.count) for event in self.kube.posted]

    @staticmethod
    def note(reason="Cached", name="c1", text="words"):
        regarding = Regarding("ModelCache", "search", name, Uid(f"uid-{name}"))
        return EventNote(regarding, is_warning=False, reason=reason, note=text)

    async def test_repeats_are_folded_into_one_event(self):
        steps = [(at, self.note()) for at in range(0, 50, 5)]
        assert await self.publish(*steps) == [("Cached", 1)]

    async def test_a_repeat_after_a_minute_updates_the_count(self):
        steps = [(0, self.note()), (10, self.note()), (70, self.note())]
        assert await self.publish(*steps) == [("Cached", 1), ("Cached", 3)]

    async def test_after_ten_minutes_it_is_news_again(self):
        assert await self.publish((0, self.note()), (700, self.note())) == [("Cached", 1)] * 2

    async def test_other_objects_reasons_and_words_are_other_events(self):
        notes = [self.note(), self.note("Evicted"), self.note(name="c2"), self.note(text="else")]
        assert len(await self.publish(*((0, note) for note in notes))) == 4

    async def test_a_full_backlog_drops_and_does_not_block(self):
        notes = [(0, self.note(name=f"c{number}")) for number in range(1100)]
        assert await self.publish(*notes)

    async def test_cluster_scoped_objects_have_no_namespace(self):
        regarding = Regarding("CacheNode", None, "n1", Uid("u"))
        await self.publish((0, EventNote(regarding, is_warning=True, reason="NodeLost", note="x")))
        event = self.kube.posted[0]
        assert "namespace" not in event.regarding
        assert (event.type, event.namespace) == ("Warning", "default")


class TestMetrics:
    def test_C44_series_of_objects_come_and_go_with_them(self):
        cache = WatchCache()
        metrics = OperatorMetrics(cache, lambda: True)
        base = metrics.render()
        status = ModelCacheStatus(
            copies=CopiesStatus(wanted=2, ready=1),
            traffic=TrafficStatus(stable=95, canary=5),
            held=(HeldVersion(uid="v0", until=EARLIER),),
            conditions=(
                make_condition(),
                make_condition("WeightReached", kind=Condition.ROLLOUT_PROGRESSING),
                make_condition("RouteContested", "False", Condition.TRAFFIC_ROUTED),
            ),
        )
        from dataclasses import replace

        view = replace(make_cache("c1"), status=status)
        cache.observe(seen(view, 1, CACHES))
        changed = make_condition("SourceChanged", "False", Condition.SOURCE_CURRENT)
        version = make_version(conditions=(changed,))
        cache.observe(seen(version, 2, ObservedKind.MODEL_VERSIONS))
        cache.observe(seen(make_cache_node(), 3, ObservedKind.CACHE_NODES))
        text = metrics.render().decode()
        assert 'modelcache_cache_ready{name="c1",namespace="search"} 1.0' in text
        assert 'modelcache_cache_copies{name="c1",namespace="search",state="ready"} 1.0' in text
        of_cache = 'name="c1",namespace="search"'
        assert f'modelcache_cache_traffic_percent{{{of_cache},track="canary"}} 5.0' in text
        assert f'modelcache_cache_rollout{{{of_cache},reason="WeightReached"}} 1.0' in text
        assert f'modelcache_cache_route{{{of_cache},reason="RouteContested"}} 1.0' in text
        assert 'modelcache_cache_held_versions{name="c1",namespace="search"} 1.0' in text
        assert 'modelcache_version_ready{name="m1",namespace="search"} 0.0' in text
        state = 'name="m1",namespace="search",reason="SourceChanged"'
        assert f"modelcache_version_source{{{state}}} 1.0" in text
        assert 'modelcache_node_ready{node="n1"} 0.0' in text
        cache.forget(CACHES, view.key, view.uid)
        cache.forget(ObservedKind.MODEL_VERSIONS, ObjectKey("search", "m1"), Uid("v1"))
        cache.forget(ObservedKind.CACHE_NODES, ObjectKey("", "n1"), Uid("cn-n1"))
        assert metrics.render() == base

    def test_paths_that_strangers_ask_for_are_one_series(self):
        metrics = OperatorMetrics(WatchCache(), lambda: False)
        for number in range(50):
            metrics.grant_answer(f"/{number}", 404)
        metrics.grant_answer("/v1/grants", 200)
        metrics.grant_answer("/v1/pod/grants", 200)
        text = metrics.render().decode()
        assert text.count("modelcache_operator_grant_answers_total{") == 3


class TestLogs:
    def record(self, text, level=logging.WARNING, name="x"):
        return logging.LogRecord(name, level, "", 0, text, (), None)

    def test_the_same_warning_is_told_once_a_minute_whatever_its_numbers(self):
        now = [0.0]
        repeats = _NoRepeats(lambda: now[0])
        assert repeats.filter(self.record("try 1"))
        assert not repeats.filter(self.record("try 2"))
        assert repeats.filter(self.record("other"))
        assert repeats.filter(self.record("try 3", level=logging.INFO))
        now[0] = 61
        assert repeats.filter(self.record("try 4"))

    def test_a_record_is_one_line_without_control_characters(self):
        line = _OneLine("%(message)s").format(self.record("a\nb\x1b[31m"))
        assert line == "a\\x0ab\\x1b[31m"

    def test_a_record_tells_what_it_is_about(self):
        with about(object="node:n1", trace="t"):
            line = _OneLine("%(message)s").format(self.record("again in 2 s"))
        assert line == "again in 2 s object=node:n1 trace=t"

    def test_kopfs_tracebacks_are_left_out_and_ours_are_kept(self):
        try:
            int("bug")
        except ValueError as error:
            info = (type(error), error, error.__traceback__)
        for name, kept in (("kopf.x", False), ("modelcache_operator.x", True)):
            record = logging.LogRecord(name, logging.ERROR, "", 0, "failed", (), info)
            assert ("Traceback" in _OneLine("%(message)s").format(record)) is kept


@pytest.mark.looptime
async def test_a_token_bucket_gives_a_burst_and_then_a_rate():
    bucket = TokenBucket(10, 5)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await asyncio.gather(*(bucket.take() for _ in range(25)))
    assert loop.time() - started == pytest.approx(2.0)
    await asyncio.sleep(100)
    started = loop.time()
    await asyncio.gather(*(bucket.take() for _ in range(6)))
    assert loop.time() - started == pytest.approx(0.1)
