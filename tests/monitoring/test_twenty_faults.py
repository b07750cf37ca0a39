"""Each of twenty faults leads to one reason, Event, metric and alert; `why` names it and its cure.

The leader's core on a cluster in memory. Injected is what stores answer to the real client, what
Secrets, quotas and specs hold, how large disks are, and whose Leases are renewed. Played is what an
agent says of its own bytes: that they are verified, or no model.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from builders import GIB, digest, make_version
from fakes.alert_scenes import MINUTES
from fakes.memory_core import MemoryCore, MemoryWorld
from fakes.metric_catalogue import names_in
from fakes.s3_stub import Answer, error
from fakes.scripted_store import ScriptedStore
from modelcache_agent.adapters.prometheus import PrometheusMetrics
from modelcache_agent.decide.actions import EntryView
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.fetch import FetchCounters
from modelcache_api.cures import CURES
from modelcache_api.names import EntryState, Reason
from modelcache_api.v1alpha1.rollout import CanarySpec
from modelcache_api.v1alpha1.source import SecretRef
from modelcache_cli.why import Target, TargetKind, judge_object
from modelcache_operator.adapters.metrics import OperatorMetrics
from modelcache_operator.decide.allowed_sources import AllowList
from modelcache_operator.decide.world import CacheNodeView, NodeName, ObjectKey
from modelcache_operator.keys import version_key
from modelcache_testbed.programs import promtool

ALERTS = (
    Path(__file__).parents[2] / "charts" / "modelcache" / "files" / "monitoring" / "alerts.yaml"
)

C1, M1 = ObjectKey("search", "c1"), ObjectKey("search", "m1")
DAY = 86400.0
VERSION, CACHE, NODE = TargetKind.VERSION, TargetKind.CACHE, TargetKind.NODE
# What an Event of each kind of target is regarding.
_KINDS = {VERSION: "ModelVersion", CACHE: "ModelCache", NODE: "CacheNode"}
_NO_BUCKET = error(404, "NoSuchBucket")
_SKEWED = error(
    403,
    "RequestTimeTooSkewed",
    RequestTime="20261129T100000Z",
    ServerTime="2026-11-29T10:20:00Z",
)
_READ_BY_RULES = names_in(ALERTS.read_text())
_OF_M1 = 'name="m1",namespace="search"'
_OF_C1 = 'name="c1",namespace="search"'


class Stage:
    """Three nodes and a leader; m1 is held on two of them once `run` was called."""

    def __init__(self, store: ScriptedStore) -> None:
        self.store, self.world = store, MemoryWorld()
        self.world.sources = store
        for number in range(3):
            self.world.add_node(f"n{number}")
        self.core = MemoryCore(self.world)
        self.core.begin()

    def add_version(self, name: str = "m1", secret: str = "keys") -> None:
        view = make_version(name, uid=f"uid-{name}", resolved=False)
        source = {
            "endpoint": self.store.endpoint,
            "credentials_secret_ref": SecretRef(name=secret),
        }
        spec = {"source": view.spec.source.model_copy(update=source)}
        self.world.show(replace(view, spec=view.spec.model_copy(update=spec)))

    def run(self, **cache) -> None:
        self.add_version()
        self.world.add_cache(**{"copies": 2, **cache})
        self.look()

    def look(self) -> None:
        """Settle, and once more: what was told is not told again."""
        for _ in range(3):
            self.core.settle()
            self.core.router.look_at_everything()
        self.core.settle()

    def wait(self, seconds: float, *, silent=(), step: float = 60.0) -> None:
        for _ in range(int(seconds // step)):
            self.world.clock.seconds += step
            self.world.renew_all(but=silent)
            self.core.list_leases()
            self.core.recheck_queue.add(version_key(M1))
            self.core.settle()

    @property
    def version(self):
        return self.world.cache.model_version_named(M1)

    @property
    def holder(self) -> str:
        nodes = self.world.cache.cache_nodes()
        return min(str(node.name) for node in nodes if node.spec.entries)


@contextmanager
def opened_stage() -> Iterator[Stage]:
    store = ScriptedStore()
    try:
        yield Stage(store)
    finally:
        store.close()


def _refused(answer: Answer) -> Callable[[Stage], None]:
    def inject(stage: Stage) -> None:
        stage.store.refusal = answer
        stage.add_version()

    return inject


def _source_is_not_allowed(stage: Stage) -> None:
    stage.store.allow_list = AllowList()
    stage.add_version()


def _secret_is_missing(stage: Stage) -> None:
    stage.add_version(secret="no-such-secret")


def _nobody_listens(stage: Stage) -> None:
    stage.store.go_away()
    stage.add_version()


def _authority_is_unknown(stage: Stage) -> None:
    stage.store.use_private_authority()
    stage.add_version()


def _source_is_replaced(stage: Stage) -> None:
    stage.run()
    stage.store.etag = '"another"'
    stage.wait(1.2 * DAY, step=3600)


def _source_vanishes(stage: Stage) -> None:
    stage.run()
    stage.store.refusal = _NO_BUCKET
    stage.wait(1.2 * DAY, step=3600)


def _pin_contradicts(stage: Stage) -> None:
    stage.run()
    pinned = stage.version.spec.model_copy(update={"digest": digest("e")})
    stage.world.show(replace(stage.version, spec=pinned, generation=2))


def _nodes_are_too_small(stage: Stage) -> None:
    stage.world.capacity = GIB // 2
    stage.run()


def _disks_are_full(stage: Stage) -> None:
    stage.world.capacity = GIB
    stage.add_version("m0")
    stage.world.add_cache("c0", version="m0", copies=3, min_ready=3)
    stage.look()
    stage.run(copies=1)


def _nothing_matches(stage: Stage) -> None:
    stage.run(node_selector={"pool": "none"})


def _quota_is_too_small(stage: Stage) -> None:
    stage.world.add_quota(disk="100Mi")
    stage.run()


def _no_agent_runs(stage: Stage) -> None:
    for number in range(3):
        stage.world.remove_node(f"n{number}")
        stage.world.add_node(f"bare-{number}", agent=False)
    stage.run()


def _name_is_wrong(stage: Stage) -> None:
    stage.world.add_cache()


def _bytes_are_no_model(stage: Stage) -> None:
    stage.world.states |= {(f"n{number}", "uid-m1"): EntryState.FAILED for number in range(3)}
    stage.run()


def _agent_falls_silent(stage: Stage) -> None:
    stage.run()
    stage.wait(900, silent=[NodeName("n0")], step=10)


def _canary_has_no_room(stage: Stage) -> None:
    stage.world.capacity = GIB + GIB // 2
    stage.run()
    stage.add_version("m2")
    cache = stage.world.cache.model_cache(C1)
    canary = CanarySpec(model_version="m2", weight=5)
    spec = cache.spec.model_copy(update={"canary": canary})
    stage.world.show(replace(cache, spec=spec, generation=2))


@dataclass(frozen=True)
class Fault:
    """`metric` is the series that tells it, as Prometheus reads it."""

    name: str
    inject: Callable[[Stage], None]
    target: Target
    reason: Reason
    metric: str
    alert: str


def _of_version(name: str, inject: Callable[[Stage], None], reason: Reason) -> Fault:
    metric = f'modelcache_version_reason{{{_OF_M1},reason="{reason}"}} 1.0'
    target = Target(VERSION, "m1", "search")
    return Fault(name, inject, target, reason, metric, "ModelCacheVersionNotReady")


def _of_cache(name: str, inject: Callable[[Stage], None], reason: Reason) -> Fault:
    metric = f'modelcache_cache_reason{{{_OF_C1},reason="{reason}"}} 1.0'
    return Fault(name, inject, Target(CACHE, "c1", "search"), reason, metric, "ModelCacheNotReady")


def _of_source(name: str, inject: Callable[[Stage], None], reason: Reason) -> Fault:
    metric = f'modelcache_version_source{{{_OF_M1},reason="{reason}"}} 1.0'
    target = Target(VERSION, "m1", "search")
    return Fault(name, inject, target, reason, metric, "ModelCacheSourceChanged")


FAULTS = (
    _of_version("there is no such bucket", _refused(_NO_BUCKET), Reason.SOURCE_NOT_FOUND),
    _of_version("the source is not allowed", _source_is_not_allowed, Reason.SOURCE_NOT_ALLOWED),
    _of_version("the keys are refused", _refused(error(403, "AccessDenied")), Reason.AUTH_FAILED),
    _of_version("the Secret is missing", _secret_is_missing, Reason.SECRET_NOT_FOUND),
    _of_version(
        "the token has ended", _refused(error(400, "ExpiredToken")), Reason.CREDENTIALS_EXPIRED
    ),
    _of_version("nobody listens at the endpoint", _nobody_listens, Reason.ENDPOINT_UNREACHABLE),
    _of_version("the authority is unknown", _authority_is_unknown, Reason.TLS_FAILED),
    _of_version("the clocks differ", _refused(_SKEWED), Reason.CLOCK_SKEW),
    _of_source("other bytes lie at the source", _source_is_replaced, Reason.SOURCE_CHANGED),
    _of_source("the source is deleted", _source_vanishes, Reason.SOURCE_GONE),
    _of_version("the pin names other bytes", _pin_contradicts, Reason.DIGEST_MISMATCH),
    _of_cache("no disk is large enough", _nodes_are_too_small, Reason.NEVER_FITS),
    _of_cache("the disks are full", _disks_are_full, Reason.INSUFFICIENT_SPACE),
    _of_cache("the selector matches nothing", _nothing_matches, Reason.NO_ELIGIBLE_NODE),
    Fault(
        "the quota is too small",
        _quota_is_too_small,
        Target(CACHE, "c1", "search"),
        Reason.QUOTA_EXCEEDED,
        f"modelcache_cache_quota_exceeded{{{_OF_C1}}} 1.0",
        "ModelCacheQuotaRefused",
    ),
    _of_cache("no agent runs", _no_agent_runs, Reason.AGENTS_NOT_RUNNING),
    _of_cache("the version's name is wrong", _name_is_wrong, Reason.MODEL_VERSION_NOT_FOUND),
    _of_cache("the bytes are no model", _bytes_are_no_model, Reason.NOT_A_MODEL),
    Fault(
        "an agent falls silent",
        _agent_falls_silent,
        Target(NODE, "n0", None),
        Reason.NODE_LOST,
        'modelcache_node_ready{node="n0"} 0.0',
        "ModelCacheAgentSilent",
    ),
    Fault(
        "the canary has no room",
        _canary_has_no_room,
        Target(CACHE, "c1", "search"),
        Reason.CANARY_DOES_NOT_FIT,
        f'modelcache_cache_rollout{{{_OF_C1},reason="{Reason.CANARY_DOES_NOT_FIT}"}} 1.0',
        "ModelCacheRolloutStuck",
    ),
)


def _find(stage: Stage, target: Target):
    cache, key = stage.world.cache, ObjectKey(target.namespace or "", target.name)
    if target.kind is VERSION:
        return cache.model_version_named(key)
    return cache.model_cache(key) if target.kind is CACHE else cache.cache_node(target.name)


def _ask_why(stage: Stage, target: Target) -> str:
    status = _find(stage, target).status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return judge_object(target.kind, {"status": status}).tell(target)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with opened_stage() as stage:
        yield stage


def test_there_are_twenty_and_no_two_are_one():
    assert len(FAULTS) == 20
    assert len({fault.name for fault in FAULTS}) == 20
    assert len({(fault.target.kind, fault.reason) for fault in FAULTS}) == 20


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_is_one_reason_one_event_and_one_metric_and_why_names_the_cure(stage, fault):
    metrics = OperatorMetrics(stage.world.cache, lambda: True)
    fault.inject(stage)
    stage.look()

    line = _ask_why(stage, fault.target)
    assert line.startswith(f"{fault.target}: {fault.reason}"), line
    assert line.endswith(f"; cure: {CURES[fault.reason]}"), line

    told = [
        note
        for note in stage.world.events
        if (note.regarding.kind, note.regarding.name)
        == (_KINDS[fault.target.kind], fault.target.name)
        and note.is_warning
    ]
    assert [note.reason for note in told] == [fault.reason], [n.note for n in told]

    assert metrics.render().decode().splitlines().count(fault.metric) == 1


@pytest.mark.parametrize("kind", [VERSION, CACHE, NODE])
def test_where_nothing_is_wrong_no_warning_and_no_metric_says_so(stage, kind):
    metrics = OperatorMetrics(stage.world.cache, lambda: True)
    stage.run()
    stage.look()
    name, namespace = {VERSION: "m1", CACHE: "c1", NODE: stage.holder}[kind], "search"
    target = Target(kind, name, None if kind is NODE else namespace)
    assert "cure" not in _ask_why(stage, target)
    assert not [note for note in stage.world.events if note.is_warning]
    shown = set(metrics.render().decode().splitlines())
    assert shown.isdisjoint(fault.metric for fault in FAULTS)


def test_each_fault_is_told_by_one_alert(tmp_path):
    """Prometheus's own tool: all that the operator says in the fault, for an hour."""
    tests = []
    for fault in FAULTS:
        with opened_stage() as stage:
            tests.append(_play(stage, fault))
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    file = tmp_path / "faults.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    command = [str(promtool()), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_agents_tell_of_the_fault_too():
    """Else no alert on agents could fire beside the one that is wanted."""
    fault = next(one for one in FAULTS if one.reason is Reason.NOT_A_MODEL)
    with opened_stage() as stage:
        fault.inject(stage)
        stage.look()
        series = dict(_list_series(stage))
        told = 'modelcache_agent_entry_reasons{reason="NotAModel",node="%s"}'
        assert series[told % stage.holder] == 1


def _play(stage: Stage, fault: Fault) -> dict[str, object]:
    fault.inject(stage)
    stage.look()
    return {
        "name": fault.name,
        "interval": "1m",
        "input_series": [
            {"series": name, "values": f"{value:.0f}x{MINUTES}"}
            for name, value in _list_series(stage)
        ],
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": f'{{alertname="{fault.alert}"}}', "value": 1}],
            }
        ],
    }


def _list_series(stage: Stage) -> Iterator[tuple[str, float]]:
    """All that rules read, of the operator and of the agent of each node that is not silent."""
    operator = OperatorMetrics(stage.world.cache, lambda: True)
    ends = dict.fromkeys(("serving", "authority"), datetime(2036, 1, 1, tzinfo=UTC))
    operator.tell_certificates(lambda: ends, lambda: ends["authority"])
    yield from _read(operator.render())
    for node in stage.world.cache.cache_nodes():
        if not any(one.reason == Reason.NODE_LOST for one in node.status.conditions):
            yield from _read(_play_agent(node).render(), node.name)


def _play_agent(node: CacheNodeView) -> PrometheusMetrics:
    """The agent that has reported these entries."""
    agent = PrometheusMetrics(FetchCounters)
    views = tuple(
        EntryView(entry.uid, entry.state, Reason(entry.reason or Reason.CACHED))
        for entry in node.status.entries
    )
    agent.observe(views, Ledger(GIB), GIB, 0)
    return agent


def _read(page: bytes, node: str | None = None) -> Iterator[tuple[str, float]]:
    """Series by name, with the label that the PodMonitor gives."""
    for row in page.decode().splitlines():
        series, _, value = row.rpartition(" ")
        name, _, labels = series.rstrip("}").partition("{")
        if name not in _READ_BY_RULES:
            continue
        given = f'node="{node}"' if node else ""
        yield f"{name}{{{','.join(filter(None, (labels, given)))}}}", float(value)
