"""`kubectl modelcache checklist`: what each probe says of what was seen."""

from __future__ import annotations

import base64
import json
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from builders import NOW
from fakes.played_objects import PlayedKube, book, condition, entry, entry_spec, node, version
from modelcache_agent.adapters.prometheus import PrometheusMetrics
from modelcache_agent.fetch import FetchCounters
from modelcache_cli.__main__ import app
from modelcache_cli.checklist import commands
from modelcache_cli.checklist.observing import (
    RIGHTS,
    observe,
    see_certificate,
    see_clock,
    see_workload,
)
from modelcache_cli.checklist.probes import GUARDS, PROBES, judge
from modelcache_cli.checklist.trial import TrialModel, build_trial, try_model
from modelcache_cli.checklist.values import (
    Certificate,
    Clock,
    Observed,
    Outcome,
    Right,
    Scraped,
    Switch,
    Trial,
    Workload,
)
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import observe_fleet
from modelcache_kube import ApiUnavailable, Forbidden, Invalid, NotFound
from modelcache_operator.tls import make_authority

SYSTEM = "modelcache-system"
CHART = Path(__file__).parents[3] / "charts/modelcache"


async def fleet(*nodes, versions=()):
    kube = PlayedKube(cachenodes=nodes, modelversions=versions)
    return await observe_fleet(kube, None)


LOOKED = {"lastCheckTime": "2026-01-31T11:00:00Z"}


async def well(**changes):
    seen = Observed(
        now=NOW,
        fleet=await fleet(node("n1", specs=[entry_spec()]), versions=[version(**LOOKED)]),
        rights=[Right("modelcache-agent", "patch", "nodes", True)],
        workloads=[Workload("Deployment", "modelcache-operator", 2, 2)],
        guards=GUARDS,
        injection="the webhook",
        csi_driver=True,
        drivers=frozenset({"n1"}),
        clocks=[Clock("n1", timedelta(seconds=1))],
        certificates=[Certificate("the operator's authority", NOW + timedelta(days=300))],
        scraped=Scraped(1),
        trial=Trial(True, 7.2, "Cached"),
    )
    return replace(seen, **changes)


def verdict_of(check, seen):
    return next(one for one in judge(seen) if one.check == check)


async def test_a_cluster_that_is_ready_passes_every_probe_with_nothing_to_do():
    verdicts = judge(await well())
    assert [(one.outcome, one.todo) for one in verdicts] == [(Outcome.PASS, "")] * len(PROBES)


def test_what_could_not_be_looked_at_never_passes_and_says_what_helps():
    verdicts = judge(Observed(NOW))
    assert {one.outcome for one in verdicts} == {Outcome.UNKNOWN}
    assert all(one.told and one.todo for one in verdicts)


@pytest.mark.parametrize(
    ("check", "changes", "told"),
    [
        pytest.param(
            "RBAC",
            {"rights": [Right("modelcache-operator", "get", "secrets", False)]},
            "modelcache-operator may not get secrets",
            id="a right that was taken away",
        ),
        pytest.param("workloads", {"workloads": []}, "no Deployment or DaemonSet", id="no chart"),
        pytest.param(
            "workloads",
            {"workloads": [Workload("Deployment", "modelcache-operator", 0, 0)]},
            "Deployment modelcache-operator: 0 of 0 ready",
            id="an operator that is scaled to nothing",
        ),
        pytest.param(
            "workloads",
            {"workloads": [Workload("DaemonSet", "a", 3, 1, "CrashLoopBackOff no mount point")]},
            "1 of 3 ready: CrashLoopBackOff no mount point",
            id="an agent without its mount point",
        ),
        pytest.param(
            "admission",
            {"guards": GUARDS - {"modelcache-node-labels"}},
            "without guard: modelcache-node-labels",
            id="a guard that is not bound",
        ),
        pytest.param("admission", {"injection": ""}, "nothing injects", id="no injection"),
        pytest.param("CSI", {"csi_driver": False}, "there is no CSIDriver", id="no driver"),
        pytest.param("CSI", {"drivers": frozenset()}, "does not know the driver on n1", id="node"),
        pytest.param(
            "TLS",
            {"certificates": [Certificate("the webhook's CA", NOW + timedelta(days=2))]},
            "the webhook's CA ends at 2026-02-02 12:00 UTC",
            id="a certificate near its end",
        ),
        pytest.param("TLS", {"certificates": []}, "no authority", id="no authority"),
        pytest.param(
            "TLS",
            {"certificates": [Certificate("a", NOW + timedelta(days=99)), Certificate("b", None)]},
            "what is published as b is no certificate",
            id="garbage beside a good one",
        ),
        pytest.param(
            "clocks",
            {"clocks": [Clock("n1", timedelta(seconds=-95))]},
            "n1 is 95 s behind",
            id="a clock that is behind",
        ),
        pytest.param("metrics", {"scraped": Scraped(0)}, "of 0 of 1 agents", id="not scraped"),
        pytest.param("metrics", {"scraped": Scraped(trouble="no answer")}, "no answer", id="away"),
        pytest.param(
            "test model",
            {"trial": Trial(False, 300, "no verified copy after 300 s: AuthFailed: 403", "x")},
            "AuthFailed",
            id="a model that does not come",
        ),
    ],
)
async def test_a_fault_fails_its_own_probe_alone_and_says_what_to_do(check, changes, told):
    verdicts = judge(await well(**changes))
    (failed,) = [one for one in verdicts if one.outcome is Outcome.FAIL]
    assert (failed.check, bool(failed.todo)) == (check, True)
    assert told in failed.told


@pytest.mark.parametrize(
    ("check", "nodes", "told"),
    [
        ("mount points", [], "no agent has reported"),
        ("CSI", [], "no agent has reported"),
        ("capacity", [], "no living agent"),
        ("capacity", [node("n1", alive=False)], "no living agent"),
        ("mount points", [node("n1", alive=False)], "no living agent on n1"),
        ("mount points", [node("n1", tiers=[book(capacity=0, used=0)])], "no bytes for the cache"),
        (
            "mount points",
            [node("n1", entries=[entry("u1", "Failed", reason="StoreError")])],
            "the store's disk fails on n1",
        ),
        (
            "capacity",
            [node("n1", tiers=[book(capacity=10 << 30)], specs=[entry_spec(sizeBytes=9 << 30)])],
            "n1: 9Gi of 10Gi are placed",
        ),
        ("capacity", [node("n1", tiers=[book(pressure="92 % are used")])], "n1: 92 % are used"),
    ],
)
async def test_stores_and_room_are_judged_by_what_agents_report(check, nodes, told):
    found = verdict_of(check, await well(fleet=await fleet(*nodes)))
    assert (found.outcome, told in found.told) == (Outcome.FAIL, True), found


async def test_the_room_of_lost_nodes_is_nobodys():
    nodes = node("n1", specs=[entry_spec()]), node("n2", alive=False)
    found = verdict_of("capacity", await well(fleet=await fleet(*nodes)))
    assert (found.outcome, found.told[:32]) == (Outcome.PASS, "1Gi of 100Gi are placed, with 20")


async def test_what_the_chart_switches_off_passes_and_is_told():
    off = {"csi_driver": False, "drivers": frozenset(), "injection": ""}
    failed = [one.check for one in judge(await well(**off)) if one.outcome is Outcome.FAIL]
    assert failed == ["admission", "CSI"]
    seen = await well(**off, switched_off=frozenset(Switch))
    assert {one.outcome for one in judge(seen)} == {Outcome.PASS}
    assert "injection.mode is none" in verdict_of("admission", seen).told
    assert verdict_of("CSI", seen).told == "csi.enabled is false: no pod gets a volume"


async def test_a_profile_whose_nodes_may_be_scaled_to_zero_does_not_fail():
    ready = Workload("Deployment", "modelcache-operator", 2, 2)
    idle = Workload("DaemonSet", "modelcache-agent-gpu", 0, 0)
    found = verdict_of("workloads", await well(workloads=[ready, idle]))
    assert (found.outcome, found.told) == (
        Outcome.UNKNOWN,
        "no node is selected by DaemonSet modelcache-agent-gpu",
    )
    broken = replace(ready, ready=1)
    assert verdict_of("workloads", await well(workloads=[broken, idle])).outcome is Outcome.FAIL


async def test_who_may_not_read_what_injects_is_not_told_that_nothing_does():
    found = verdict_of("admission", await well(injection=None))
    assert (found.outcome, found.told) == (
        Outcome.UNKNOWN,
        "mutating policies and webhooks may not be read",
    )


async def test_how_old_the_last_look_at_sources_is_and_which_had_none_is_said():
    looked = [version(lastCheckTime=f"2026-01-{day}T00:00:00Z") for day in (31, 30)]
    seen = await well(fleet=await fleet(node(), versions=[*looked, version("pinned")]))
    found = verdict_of("sources", seen)
    told = found.told
    assert told.startswith("2 of 3 sources answered and were the same, the first of these looks at")
    assert found.outcome is Outcome.PASS
    assert "at 2026-01-30 00:00 UTC; 1 not since they were resolved, or pinned: --test-uri" in told


@pytest.mark.parametrize(
    ("versions", "outcome", "todo"),
    [
        pytest.param([version("pinned")], Outcome.UNKNOWN, "as --test-uri", id="no look at all"),
        pytest.param(
            [version(lastCheckTime="2026-01-29T11:30:00Z")], Outcome.PASS, "", id="49 hours old"
        ),
        pytest.param(
            [version(**LOOKED), version("old", lastCheckTime="2026-01-29T10:59:00Z")],
            Outcome.UNKNOWN,
            "check that the operator runs",
            id="twice 24 h and the hour in which nothing is written are over",
        ),
    ],
)
async def test_sources_that_nobody_looked_at_in_time_are_no_pass(versions, outcome, todo):
    found = verdict_of("sources", await well(fleet=await fleet(node(), versions=versions)))
    assert (found.outcome, todo in found.todo) == (outcome, True), found


async def test_a_version_that_is_being_deleted_fails_no_probe():
    going = version("going", conditions=[condition("Ready", "False", "AuthFailed", "403")])
    going["metadata"] |= {"deletionTimestamp": "2026-01-31T11:00:00Z", "finalizers": ["f"]}
    seen = await well(fleet=await fleet(node(), versions=[version(**LOOKED), going]))
    assert verdict_of("sources", seen).outcome is Outcome.PASS


async def test_what_pods_brought_takes_no_headroom():
    brought = entry_spec(sizeBytes=95 << 30, origin="Demand")
    seen = await well(fleet=await fleet(node("n1", specs=[brought])))
    assert verdict_of("capacity", seen).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        ([condition(reason="Resolved")], Outcome.PASS),
        ([condition("Ready", "False", "AuthFailed", "403")], Outcome.FAIL),
        (
            [condition(reason="Resolved"), condition("SourceCurrent", "False", "SourceGone")],
            Outcome.FAIL,
        ),
        ([], Outcome.FAIL),
    ],
)
async def test_sources_pass_when_all_answer_and_are_the_same(conditions, outcome):
    one = version()
    one["status"]["conditions"] = conditions
    seen = await well(fleet=await fleet(node(), versions=[version("ok", **LOOKED), one]))
    assert verdict_of("sources", seen).outcome is outcome


def lease(renewed, written):
    return {
        "metadata": {
            "name": "modelcache-agent-n1",
            "managedFields": [{"manager": "modelcache-agent", "time": written}],
        },
        "spec": {"renewTime": renewed},
    }


def test_a_nodes_clock_is_compared_with_the_api_servers_whatever_the_age_of_its_lease():
    old = lease("2020-01-01T00:01:40.250000Z", "2020-01-01T00:00:00Z")
    assert see_clock(old) == Clock("n1", timedelta(seconds=100.25))
    assert see_clock({"metadata": {"name": "x"}, "spec": {}}) is None


def test_of_a_bundle_the_certificate_counts_that_ends_last():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    old = make_authority(now).certificate.decode()
    new = make_authority(now + timedelta(days=30)).certificate.decode()
    both, alone = see_certificate("ca", old + new), see_certificate("ca", old)
    assert both.not_after - alone.not_after == timedelta(days=30)
    assert see_certificate("ca", "no certificate") == Certificate("ca", None)


def test_a_workload_tells_what_keeps_its_pod_from_running():
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off"}
    ended = {"terminated": {"message": "/mnt/nvme is no mount point"}}
    status = {"containerStatuses": [{"state": {"waiting": waiting}, "lastState": ended}]}
    pods = [
        {"metadata": {"name": "modelcache-agent-rest-x"}, "status": {}},
        {"metadata": {"name": "modelcache-agent-gpu-x"}, "status": status},
    ]
    raw = {
        "metadata": {"name": "modelcache-agent-gpu"},
        "spec": {},
        "status": {"desiredNumberScheduled": 3, "numberReady": 2},
    }
    assert see_workload("DaemonSet", raw, pods) == Workload(
        "DaemonSet",
        "modelcache-agent-gpu",
        3,
        2,
        "CrashLoopBackOff /mnt/nvme is no mount point",
    )


class PlayedCluster(PlayedKube):
    """Grants what it is asked, and makes what is created ready at the second look."""

    def __init__(self, *, refused=(), conditions=(), **objects) -> None:
        super().__init__(**objects)
        self.refused, self.conditions = refused, list(conditions)
        self.created, self.deleted = [], []
        self.get_of_caches = None

    async def create(self, resource, obj, **_options):
        if resource.plural in self.refused:
            raise Forbidden("403: no", code=403)
        if resource.plural == "subjectaccessreviews":
            attributes = obj["spec"]["resourceAttributes"]
            return {"status": {"allowed": attributes["resource"] != "tokenreviews"}}
        self.created.append((resource.plural, obj))
        self.objects.setdefault(resource.plural, []).append(obj)
        return obj

    async def get(self, resource, name, namespace=None):
        if resource.plural == "mutatingadmissionpolicybindings":
            raise NotFound("404: not served", code=404)
        if resource.plural == "modelcaches" and self.get_of_caches:
            return await self.get_of_caches()
        found = await super().get(resource, name, namespace)
        if resource.plural != "modelcaches" or found is None or not self.conditions:
            return found
        return {**found, "status": {"conditions": [self.conditions.pop(0)]}}

    async def delete(self, resource, name, namespace=None):
        self.deleted.append((resource.plural, namespace, name))


def an_installed_cluster(**options):
    pem = make_authority(NOW).certificate
    hook = {"clientConfig": {"caBundle": base64.b64encode(pem).decode()}}
    drivers = [{"name": "csi.modelcache.io"}]
    return PlayedCluster(
        cachenodes=[node("n1")],
        validatingadmissionpolicybindings=[
            {"metadata": {"name": name}, "spec": {"policyName": name}} for name in GUARDS
        ],
        mutatingwebhookconfigurations=[
            {"metadata": {"name": "modelcache-injection"}, "webhooks": [hook]}
        ],
        csidrivers=[{"metadata": {"name": "csi.modelcache.io"}}],
        csinodes=[{"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}],
        configmaps=[
            {
                "metadata": {"name": "modelcache-ca", "namespace": SYSTEM},
                "data": {"ca.crt": pem.decode()},
            }
        ],
        leases=[{**lease("2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z")}],
        **options,
    )


async def test_everything_is_read_from_the_api_server():
    kube = an_installed_cluster()
    kube.objects["leases"][0]["metadata"]["namespace"] = SYSTEM
    seen = await observe(kube, SYSTEM, NOW)
    assert [right.resource for right in seen.rights or () if not right.is_allowed] == [
        "tokenreviews"
    ]
    assert (seen.guards, seen.injection, seen.csi_driver) == (GUARDS, "the webhook", True)
    assert (seen.drivers, seen.workloads) == (frozenset({"n1"}), ())
    assert [one.name for one in seen.certificates or ()] == [
        "the operator's authority",
        "the webhook's CA",
    ]
    assert seen.clocks == (Clock("n1", timedelta(seconds=1)),)
    assert seen.switched_off == frozenset()


async def test_what_is_switched_off_is_read_from_the_operators_deployment():
    annotations = {"modelcache.io/switched-off": "csi.enabled injection.mode"}
    metadata = {"name": "modelcache-operator", "namespace": SYSTEM, "annotations": annotations}
    deployment = {"metadata": metadata, "spec": {"replicas": 2}}
    kube = an_installed_cluster(deployments=[deployment])
    assert (await observe(kube, SYSTEM, NOW)).switched_off == frozenset(Switch)


async def test_what_may_not_be_read_is_unknown_and_the_rest_is_judged():
    kube = an_installed_cluster(refused=("subjectaccessreviews",))
    kube.forbidden = frozenset({"csinodes", "leases", "pods"})
    unknown = {
        one.check
        for one in judge(await observe(kube, SYSTEM, NOW))
        if one.outcome is Outcome.UNKNOWN
    }
    assert {"RBAC", "workloads", "CSI", "clocks"} <= unknown
    assert not {"admission", "TLS"} & unknown


async def test_a_webhook_that_may_not_be_read_is_not_taken_for_none_and_garbage_not_for_a_ca():
    kube = an_installed_cluster()
    kube.forbidden = frozenset({"mutatingwebhookconfigurations"})
    seen = await observe(kube, SYSTEM, NOW)
    assert (seen.injection, seen.certificates) == (None, None)
    kube.forbidden = frozenset()
    (hook,) = kube.objects["mutatingwebhookconfigurations"]
    hook["webhooks"] = [{"clientConfig": {"caBundle": "!"}}]
    _, ours = (await observe(kube, SYSTEM, NOW)).certificates
    assert ours == Certificate("the webhook's CA", None)


def test_the_guards_that_are_looked_for_are_those_of_the_chart():
    templates = (CHART / "templates/guards").glob("*.yaml")
    named = (
        re.findall(r'guardHead" \(dict "root" \$ "name" "([^"]+)"', t.read_text())
        for t in templates
    )
    assert {name for names in named for name in names} == GUARDS


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: " ".join(map(str, right[:4])))
def test_the_rights_that_are_looked_for_are_granted_by_the_chart(right):
    account, verb, group, resource, is_inside = right
    file = CHART / "files" / f"rbac-{account.removeprefix('modelcache-')}.yaml"
    kind = "Role" if is_inside else "ClusterRole"
    rules = [
        rule
        for role in yaml.safe_load_all(file.read_text())
        if role["kind"] == kind
        for rule in role["rules"]
    ]
    assert any(
        group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
        for rule in rules
    )


def test_the_metric_that_is_counted_is_one_series_of_each_agent():
    metrics = PrometheusMetrics(FetchCounters)
    lines = metrics.render().decode().splitlines()
    assert len([line for line in lines if line.startswith("modelcache_agent_node_labels ")]) == 1
    assert "modelcache_agent_node_labels" in commands._QUERY


MODEL = TrialModel("s3://models/small", "search", 5.0, "http://s3:8333", "models-s3")


async def run_trial(kube, clock=None, timeout=MODEL.timeout):
    moments = iter(range(100))

    async def sleep(_seconds):
        return None

    model = replace(MODEL, timeout=timeout)
    return await try_model(kube, model, clock or (lambda: float(next(moments))), sleep)


async def test_a_test_model_is_fetched_and_everything_of_it_deleted():
    kube = PlayedCluster(
        conditions=[condition("Ready", "False", "Downloading"), condition(reason="Cached")]
    )
    trial = await run_trial(kube)
    assert trial.is_cached
    (_, made), (_, held) = kube.created
    name = made["metadata"]["name"]
    assert made["spec"]["source"] == {
        "uri": MODEL.uri,
        "endpoint": MODEL.endpoint,
        "credentialsSecretRef": {"name": "models-s3"},
    }
    assert held["spec"]["placement"] == {"copies": 1}
    assert kube.deleted == [
        ("modelcaches", "search", name),
        ("modelversions", "search", name),
    ]
    assert build_trial(MODEL, name)[1] == held


async def test_a_test_model_that_does_not_come_says_why_and_is_deleted():
    kube = PlayedCluster(conditions=[condition("Ready", "False", "AuthFailed", "403")] * 100)
    trial = await run_trial(kube)
    assert trial.told == "no verified copy after 5 s: AuthFailed: 403"
    assert trial.cure == "correct the Secret, or the permissions of its account"
    assert len(kube.deleted) == 2


async def test_a_test_model_that_needs_help_is_not_waited_for_to_the_end():
    told = ("Ready", "False", "ModelVersionNotReady", "SourceNotFound: no such key")
    stuck = {"conditions": [condition(*told), condition("Stalled", "True", *told[2:])]}
    kube = PlayedCluster()
    kube.get = lambda *_: as_awaited({"metadata": {}, "spec": CACHE_SPEC, "status": stuck})
    trial = await run_trial(kube, timeout=300.0)
    assert trial.told.startswith("no verified copy after 5 s: ModelVersionNotReady: SourceNotFound")
    assert trial.cure == "correct the URI in a new ModelVersion, or upload the files"
    assert len(kube.deleted) == 2


CACHE_SPEC = {"stable": {"modelVersion": "x"}}


async def as_awaited(value):
    return value


CAUSES = [
    {"message": "must match ^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?|hf://.*)$"},
    {"message": "source.uri must be s3://bucket/prefix"},
]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(
            Invalid("422: long", code=422, details={"causes": CAUSES}),
            "the test model's ModelVersion is refused: source.uri must be s3://bucket/prefix",
            id="an address of no kind",
        ),
        pytest.param(
            NotFound('404: namespaces "search" not found', code=404, details={"name": "search"}),
            "there is no namespace search: create it, or give another one by -n",
            id="no such namespace",
        ),
    ],
)
async def test_a_test_model_that_is_refused_is_one_sentence(error, said):
    kube = PlayedCluster()

    async def refuse(*_arguments, **_options):
        raise error

    kube.create = refuse
    with pytest.raises(CliError) as told:
        await run_trial(kube)
    assert (str(told.value), kube.deleted) == (said, [])


async def test_who_may_create_only_the_first_object_leaves_none_behind():
    kube = PlayedCluster(refused=("modelcaches",))
    with pytest.raises(CliError, match="you may not create the test model's ModelCache"):
        await run_trial(kube)
    assert [plural for plural, *_ in kube.deleted] == ["modelversions"]


@pytest.fixture
def cluster(monkeypatch):
    kube = an_installed_cluster()

    @asynccontextmanager
    async def open_played(choice):
        yield kube, choice.namespace or "search"

    monkeypatch.setattr(commands, "open_cluster", open_played)
    return kube


@pytest.mark.usefixtures("cluster")
def test_the_command_fails_with_a_probe_and_has_no_colours_without_a_terminal():
    result = CliRunner().invoke(app, ["checklist"])
    assert result.exit_code == 1
    assert "Fail     workloads: there is no Deployment" in result.stdout
    assert "         to do: install the chart" in result.stdout
    assert "\x1b" not in result.stdout
    coloured = CliRunner().invoke(app, ["checklist"], color=True, env={"NO_COLOR": "1"})
    assert "\x1b" not in coloured.stdout


def test_a_test_model_that_may_not_be_made_costs_none_of_the_other_verdicts(cluster):
    cluster.create = Forbidding(cluster.create)
    result = CliRunner().invoke(app, ["checklist", "--test-uri", "s3://models/small"])
    assert "Fail     test model: you may not create the test model's ModelVersion" in result.stdout
    assert "Pass     admission: " in result.stdout


async def test_an_object_of_another_release_costs_its_own_probes_alone():
    kube = an_installed_cluster()
    kube.objects["cachenodes"] = [node("n1", tiers=[book("Tape")])]
    seen = await observe(kube, SYSTEM, NOW)
    assert (seen.fleet, seen.guards) == (None, GUARDS)
    for check in ("CSI", "mount points", "capacity", "sources"):
        found = verdict_of(check, seen)
        assert found.outcome is Outcome.UNKNOWN
        assert "is not what this release knows" in found.told
        assert found.todo == "compare releases: `kubectl modelcache --version`"


def test_a_hiccup_during_the_test_model_costs_none_of_the_other_verdicts(cluster):
    async def fail(*_arguments, **_options):
        raise ApiUnavailable("503: no leader", code=503)

    cluster.get_of_caches = fail
    result = CliRunner().invoke(app, ["checklist", "--test-uri", "s3://models/small"])
    assert "Fail     test model: 503: no leader" in result.stdout
    assert "Pass     admission: " in result.stdout


class Forbidding:
    """Lets nothing but reviews be created."""

    def __init__(self, create) -> None:
        self._create = create

    async def __call__(self, resource, obj, **options):
        if resource.plural == "modelversions":
            raise Forbidden("403: no", code=403)
        return await self._create(resource, obj, **options)


@pytest.mark.usefixtures("cluster")
def test_the_command_prints_a_document_and_refuses_what_is_no_time():
    result = CliRunner().invoke(app, ["checklist", "-ojson"])
    document = json.loads(result.stdout)
    assert [one["check"] for one in document["checks"]] == list(PROBES)
    counts = [document[key] for key in ("pass", "fail", "unknown")]
    assert sum(counts) == len(PROBES)
    wrong = CliRunner().invoke(app, ["checklist", "--timeout", "soon"])
    assert (wrong.exit_code, wrong.stderr[:17]) == (1, "error: --timeout:")
