"""What the operator measures of pods, canaries and its certificates."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from builders import make_cache, make_cache_node, make_entry, make_pod_view, make_version
from fakes.authority import MemoryAuthorityStore
from modelcache_api.names import EntryState
from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_api.v1alpha1.rollout import CanarySpec, RolloutSpec, RolloutStatus
from modelcache_operator.adapters.metrics import OperatorMetrics
from modelcache_operator.adapters.parsing import Observed, ObservedKind
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.decide.world import NodeName, ObjectKey
from modelcache_operator.keys import node_key
from modelcache_operator.placement_tally import PlacementTally
from modelcache_operator.serving_certificate import ServingCertificate
from modelcache_operator.workqueue import WorkQueue

CANARY = "m2"


class Fleet:
    """A watch cache with a ModelCache of two versions, and what was counted."""

    def __init__(self) -> None:
        self.world = WatchCache()
        self.metrics = OperatorMetrics(self.world, lambda: True)
        self.world.subscribe(PlacementTally(self.world, self.metrics.placed).note)
        self._version = 0
        cache = make_cache()
        spec = cache.spec.model_copy(update={"canary": CanarySpec(model_version=CANARY, weight=5)})
        self.see(replace(cache, spec=spec), ObservedKind.MODEL_CACHES)
        self.see(make_version(), ObservedKind.MODEL_VERSIONS)
        self.see(make_version(CANARY, uid="v2"), ObservedKind.MODEL_VERSIONS)

    def see(self, view, kind) -> None:
        self._version += 1
        key = getattr(view, "key", None) or ObjectKey("", view.name)
        self.world.observe(Observed(kind, key, view.uid, self._version, view))

    def hold(self, node: str, *uids: str, state: EntryState = EntryState.CACHED) -> None:
        entries = [make_entry(uid, state) for uid in uids]
        self.see(make_cache_node(node, entries=entries), ObservedKind.CACHE_NODES)

    def bind(self, node: str, **fields) -> None:
        pod = make_pod_view(**fields)
        self.see(pod, ObservedKind.PODS)
        self.see(replace(pod, node=NodeName(node)), ObservedKind.PODS)

    def count(self, warmth: str) -> float:
        line = f'modelcache_operator_pods_placed_total{{warmth="{warmth}"}} '
        (found,) = [
            text for text in self.metrics.render().decode().splitlines() if text.startswith(line)
        ]
        return float(found.removeprefix(line))


@pytest.mark.parametrize(
    ("held", "state", "track", "warm"),
    [
        pytest.param(["v1"], EntryState.CACHED, "stable", True, id="its version is verified there"),
        pytest.param([], EntryState.CACHED, "stable", False, id="nothing is there"),
        pytest.param(["v1"], EntryState.DOWNLOADING, "stable", False, id="it is on its way"),
        pytest.param(["v1"], EntryState.CACHED, "canary", False, id="the other version is there"),
        pytest.param(["v2"], EntryState.CACHED, "canary", True, id="the canary is there"),
    ],
)
def test_a_pod_is_warm_if_its_node_holds_its_version_when_it_is_bound(held, state, track, warm):
    fleet = Fleet()
    fleet.hold("n1", *held, state=state)
    fleet.bind("n1", track=track)
    assert (fleet.count("warm"), fleet.count("cold")) == (warm, not warm)


def test_a_node_without_an_agent_is_cold():
    fleet = Fleet()
    fleet.bind("n9")
    assert (fleet.count("warm"), fleet.count("cold")) == (0, 1)


def test_a_pod_counts_once_and_not_if_it_was_bound_before_it_was_seen():
    fleet = Fleet()
    fleet.hold("n1", "v1")
    fleet.see(make_pod_view("old", node=NodeName("n1")), ObservedKind.PODS)
    fleet.see(make_pod_view("old", node=NodeName("n1"), is_ready=True), ObservedKind.PODS)
    fleet.bind("n1", name="new")
    fleet.see(make_pod_view("new", node=NodeName("n1"), is_ready=True), ObservedKind.PODS)
    assert (fleet.count("warm"), fleet.count("cold")) == (1, 0)


def test_a_pod_of_no_model_cache_is_not_counted():
    fleet = Fleet()
    fleet.bind("n1", cache="unknown")
    assert (fleet.count("warm"), fleet.count("cold")) == (0, 0)


def test_each_queue_has_a_depth_of_its_own_and_none_once_it_is_cleared():
    metrics = OperatorMetrics(WatchCache(), lambda: True)
    queues = {
        name: WorkQueue(metrics, uniform=lambda low, _high: low) for name in ("objects", "gate")
    }
    for name, queue in queues.items():
        metrics.watch_queue(name, lambda queue=queue: queue.depth)

    def read() -> dict[str, float]:
        lines = metrics.render().decode().splitlines()
        name = "modelcache_operator_queue_depth{queue="
        found = (line.removeprefix(name).partition("} ") for line in lines if name in line)
        return {queue.strip('"'): float(depth) for queue, _, depth in found}

    for number in range(3):
        queues["objects"].add(node_key(NodeName(f"n{number}")))
    queues["gate"].add(node_key(NodeName("n1")))
    assert read() == {"objects": 3, "gate": 1}
    metrics.finished("node", "success", 0.1)
    assert read() == {"objects": 3, "gate": 1}
    queues["objects"].clear()
    assert read() == {"objects": 0, "gate": 1}


def test_C61_missed_looks_begin_at_zero_and_add_up():
    metrics = OperatorMetrics(WatchCache(), lambda: True)
    name = "modelcache_operator_missed_source_checks_total"
    assert f"{name} 0.0" in metrics.render().decode()
    for looks in (0, 2, 170):
        metrics.missed_source_checks(looks)
    assert f"{name} 172.0" in metrics.render().decode()


def render_canary(*, ended: str | None, is_wanted: bool = True) -> dict[str, float]:
    world = WatchCache()
    cache = make_cache()
    canary = CanarySpec(model_version=CANARY, weight=5) if is_wanted else None
    spec = cache.spec.model_copy(update={"canary": canary, "rollout": RolloutSpec(deadline="2h")})
    began = datetime(2026, 1, 1, tzinfo=UTC)
    rollout = RolloutStatus(canary_uid="v2", aim=5, started_at=began, ended=ended)
    view = replace(cache, spec=spec, status=ModelCacheStatus(rollout=rollout))
    world.observe(Observed(ObservedKind.MODEL_CACHES, view.key, view.uid, 1, view))
    text = OperatorMetrics(world, lambda: True).render().decode()
    prefix = "modelcache_cache_canary_"
    rows = [line.rpartition(" ") for line in text.splitlines() if line.startswith(prefix)]
    return {series.removeprefix(prefix): float(value) for series, _, value in rows}


def test_a_canary_tells_when_its_time_began_and_when_it_is_over():
    names = '{name="c1",namespace="search"}'
    assert render_canary(ended=None) == {
        f"start_timestamp_seconds{names}": datetime(2026, 1, 1, tzinfo=UTC).timestamp(),
        f"deadline_timestamp_seconds{names}": datetime(2026, 1, 1, 2, tzinfo=UTC).timestamp(),
    }


def test_C44_a_canary_that_has_ended_or_left_the_spec_has_no_deadline():
    assert render_canary(ended="CanaryExpired") == {}
    assert render_canary(ended=None, is_wanted=False) == {}


async def test_certificates_tell_when_they_end_and_a_renewal_is_seen():
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    serving = ServingCertificate(MemoryAuthorityStore(), ["127.0.0.1"], now=lambda: now[0])
    metrics = OperatorMetrics(WatchCache(), lambda: True)
    metrics.tell_certificates(serving.list_expiries, serving.rotation_due_at)
    name = "modelcache_operator_certificate_expiry_timestamp_seconds{"
    assert name not in metrics.render().decode()

    def read(what: str) -> float:
        (line,) = [
            text
            for text in metrics.render().decode().splitlines()
            if text.startswith(f'{name}certificate="{what}"')
        ]
        return float(line.rpartition(" ")[2])

    await serving.ensure()
    first, authority = read("serving"), read("authority")
    assert now[0].timestamp() < first < authority
    now[0] += timedelta(days=6)
    await serving.ensure()
    assert read("serving") == first + timedelta(days=6).total_seconds()
    assert read("authority") == authority


async def test_it_tells_when_the_next_authority_is_due():
    serving = ServingCertificate(
        MemoryAuthorityStore(), ["localhost"], now=lambda: datetime.now(UTC)
    )
    metrics = OperatorMetrics(WatchCache(), lambda: True)
    metrics.tell_certificates(serving.list_expiries, serving.rotation_due_at)
    name = "modelcache_operator_authority_rotation_timestamp_seconds"
    assert f"\n{name} " not in metrics.render().decode()
    await serving.ensure()
    due_at = serving.rotation_due_at().timestamp()
    _, _, told = metrics.render().decode().partition(f"\n{name} ")
    assert float(told.partition("\n")[0]) == due_at
