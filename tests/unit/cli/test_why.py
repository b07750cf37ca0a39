"""`kubectl modelcache why`: one line with cause and cure, and a node's decisions."""

from __future__ import annotations

import pytest

from builders import digest
from modelcache_api.decisions import Decision, DecisionKind, Decisions
from modelcache_api.names import CSI_DRIVER, GATE_PLACEMENT, LABEL_CACHE, LABEL_TRACK, Tier
from modelcache_cli.errors import CliError
from modelcache_cli.why import Target, TargetKind, parse_target
from modelcache_cli.why_answer import find_answer
from modelcache_kube import Forbidden
from modelcache_kube.client import ObjectList

SYSTEM = "modelcache-system"


class Kube:
    """Stands in for the client: objects by plural and name, one agent's pod."""

    def __init__(self, decisions=(), **objects) -> None:
        self.objects = objects
        self.decisions = decisions
        self.asked = []

    async def get(self, resource, name, namespace=None):
        return self.objects.get(resource.plural, {}).get(name)

    async def list(self, resource, namespace=None, **_selectors):
        if resource.plural == "pods":
            agent = {"metadata": {"name": "agent-x"}, "status": {"phase": "Running"}}
            return ObjectList((agent,), "1")
        return ObjectList(tuple(self.objects.get(resource.plural, {}).values()), "1")

    async def read_from_pod(self, name, namespace, *, port, path):
        self.asked.append((name, namespace, port, path))
        if isinstance(self.decisions, Exception):
            raise self.decisions
        return Decisions(decisions=self.decisions).model_dump(mode="json", by_alias=True)


def condition(kind, status="True", reason="Cached", message=""):
    at = "2026-01-01T00:00:00Z"
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }


def having(*conditions, **status):
    return {"status": {"conditions": list(conditions), **status}}


async def ask(kube, *words):
    return (await find_answer(kube, parse_target(words, "search"), SYSTEM)).tell()


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (["m"], Target(TargetKind.CACHE, "m", "search")),
        (["mver/m"], Target(TargetKind.VERSION, "m", "search")),
        (["mquota/q"], Target(TargetKind.QUOTA, "q", "search")),
        (["node", "n1"], Target(TargetKind.NODE, "n1", None)),
        (["CacheNode/n1"], Target(TargetKind.NODE, "n1", None)),
        (["pods", "p"], Target(TargetKind.POD, "p", "search")),
    ],
)
def test_objects_are_named_as_for_kubectl(words, target):
    assert parse_target(words, "search") == target


@pytest.mark.parametrize(("words", "said"), [(["svc/x"], "not one of"), (["a"] * 3, "one object")])
def test_what_is_no_object_of_ours_is_refused(words, said):
    with pytest.raises(CliError, match=said):
        parse_target(words, "search")


async def test_what_does_not_exist_is_said_with_the_cure():
    with pytest.raises(CliError, match=r"no modelcache search/m: `kubectl get modelcaches --all"):
        await ask(Kube(), "m")


@pytest.mark.parametrize(
    ("found", "line"),
    [
        pytest.param(
            having(condition("Ready", reason="Cached", message="2 verified copies")),
            "modelcache search/m: Cached: 2 verified copies\n",
            id="all is well: no cure",
        ),
        pytest.param(
            having(
                condition(
                    "Ready", reason="Degraded", message="1 of 2; 1 failed: DiskPressure: full"
                )
            ),
            "modelcache search/m: Degraded: 1 of 2; 1 failed: DiskPressure: full; cure: free space "
            "on the node's disk, or give the cache a disk of its own\n",
            id="the cure of the inner cause",
        ),
        pytest.param(
            {},
            "modelcache search/m: Resolving: the operator has not looked at it yet; cure: check "
            "that the operator runs\n",
            id="nobody has looked at it",
        ),
        pytest.param(
            {
                **having(condition("Ready"), observedGeneration=1),
                "metadata": {
                    "generation": 2,
                    "deletionTimestamp": "2026-01-01T00:00:00Z",
                    "finalizers": ["foregroundDeletion"],
                },
            },
            "modelcache search/m: Deleting: it waits for finalizers: foregroundDeletion; cure: "
            "wait for whoever set them, or see why that does not take them away\n",
            id="being deleted, which the operator has no word for",
        ),
        pytest.param(
            having(
                condition("Ready"),
                condition("TrafficRouted", "False", "RouteNotFound", "there is no HTTPRoute embed"),
            ),
            "modelcache search/m: RouteNotFound: there is no HTTPRoute embed; cure: create the "
            "HTTPRoute, or correct rollout.httpRouteRef.name\n",
            id="ready and not routed",
        ),
        pytest.param(
            having(
                condition("Ready"),
                condition("RolloutProgressing", "False", "QuotaExceeded", "0 % now; 3Gi of disk"),
            ),
            "modelcache search/m: QuotaExceeded: 0 % now; 3Gi of disk; cure: lower copies, delete "
            "a ModelCache, or ask the administrator for a larger ModelCacheQuota\n",
            id="ready and its canary refused",
        ),
        pytest.param(
            having(
                condition("Ready"),
                condition("RolloutProgressing", reason="WeightReached", message="as asked"),
            ),
            "modelcache search/m: Cached\n",
            id="ready and its canary as asked",
        ),
    ],
)
async def test_a_model_cache_is_explained_in_one_line(found, line):
    assert await ask(Kube(modelcaches={"m": found}), "m") == line


@pytest.mark.parametrize(
    ("plural", "word"),
    [("modelcaches", "mcache"), ("modelversions", "mver"), ("modelcachequotas", "mquota")],
)
async def test_what_was_said_of_a_former_spec_is_no_answer_for_the_present_one(plural, word):
    found = having(condition("Ready", message="2 verified copies"), observedGeneration=1)
    found["metadata"] = {"name": "m", "generation": 2}
    line = await ask(Kube(**{plural: {"m": found}}), f"{word}/m")
    said = "Resolving: the operator has not looked at the present spec yet; cure: check that the"
    assert said in line
    found["status"]["observedGeneration"] = 2
    assert "2 verified copies" in await ask(Kube(**{plural: {"m": found}}), f"{word}/m")


async def test_a_version_whose_source_is_gone_says_so_although_it_is_ready():
    gone = condition("SourceCurrent", "False", "SourceGone", "404")
    told = await ask(
        Kube(modelversions={"m": having(condition("Ready", reason="Resolved"), gone)}), "mver/m"
    )
    assert told.startswith("modelversion search/m: SourceGone: 404; cure: restore")


@pytest.mark.parametrize(
    ("status", "reason", "end"),
    [
        ("True", "WithinQuota", "\n"),
        ("False", "QuotaExceeded", "; cure: lower copies, delete a ModelCache, or ask"),
    ],
)
async def test_a_quota_says_what_is_used_of_it(status, reason, end):
    found = having(condition("Ready", status, reason, "used of granted: 3Gi/1Gi of disk"))
    line = await ask(Kube(modelcachequotas={"q": found}), "modelcachequota", "q")
    said = f"modelcachequota search/q: {reason}: used of granted: 3Gi/1Gi of disk{end}"
    assert line.startswith(said)


EVICTED = Decision(
    at=0,
    kind=DecisionKind.EVICTED,
    cause="uid=u2 needs room",
    digest=digest("c"),
    uids=("u1",),
    size_bytes=1 << 30,
    policy="value",
    score=3.08414e-10,
    inputs="attaches=0.420",
)
BEGAN = Decision(at=60, kind=DecisionKind.PRESSURE_BEGAN, cause="92 % are used")
ALIVE = condition("Ready", reason="AgentAlive", message="the agent renews its Lease")


async def test_a_node_tells_what_went_with_which_score_and_for_what():
    versions = {
        name: {"metadata": {"name": name, "namespace": "search", "uid": uid}}
        for name, uid in (("old", "u1"), ("new", "u2"))
    }
    evicted = (
        f"1970-01-01T00:00:00Z Evicted: search/old (1Gi, {digest('c')}) policy=value "
        "score=3.08414e-10 attaches=0.420: search/new needs room"
    )
    unlocked = EVICTED.model_copy(
        update={"tier": Tier.HOST, "cause": "uid=u2 needs room in memory"}
    )
    freed = EVICTED.model_copy(update={"tier": Tier.GPU, "cause": "uid=u2 needs room on the card"})
    decisions = (BEGAN, EVICTED, unlocked, freed)
    kube = Kube(decisions, cachenodes={"n1": having(ALIVE)}, modelversions=versions)
    assert (await ask(kube, "node/n1")).splitlines() == [
        "node n1: AgentAlive",
        "1970-01-01T00:01:00Z PressureBegan: 92 % are used",
        evicted,
        evicted.replace("Evicted", "Evicted (Host)") + " in memory",
        evicted.replace("Evicted", "Evicted (GPU)") + " on the card",
    ]
    assert kube.asked == [("agent-x", SYSTEM, 9404, "/decisions")]


async def test_for_programs_the_answer_has_the_cure_and_the_decisions_apart():
    kube = Kube((EVICTED,), cachenodes={"n1": having(ALIVE)})
    told = (await find_answer(kube, parse_target(["node/n1"], "search"), SYSTEM)).to_document()
    assert (told["kind"], told["name"], told["namespace"]) == ("node", "n1", None)
    assert (told["reason"], told["cure"], told["trouble"]) == ("AgentAlive", "", "")
    assert told["decisions"][0]["kind"] == "Evicted"
    refused = Kube(Forbidden("no"), cachenodes={"n1": having(ALIVE)})
    told = (await find_answer(refused, parse_target(["node/n1"], "search"), SYSTEM)).to_document()
    assert (told["decisions"], told["trouble"][:12]) == (None, "you may not ")
    gone = condition("Ready", "False", "SourceGone", "404")
    kube = Kube(modelversions={"m": having(gone)})
    told = (await find_answer(kube, parse_target(["mver/m"], "search"), SYSTEM)).to_document()
    assert told["cure"].startswith("restore the source's files")
    assert "decisions" not in told


async def test_a_node_with_a_warning_and_one_with_a_failure_say_so():
    pressed = having(ALIVE, condition("DiskPressure", reason="DiskPressure", message="92 %"))
    failed = having(
        ALIVE,
        entries=[{"uid": "u1", "state": "Failed", "reason": "AuthFailed", "message": "403"}] * 2,
    )
    unfit = having(ALIVE, condition("HostTierUnfit", reason="HostTierUnfit", message="not root"))
    kube = Kube(cachenodes={"n1": pressed, "n2": failed, "n3": unfit})
    assert (await ask(kube, "node/n3")).startswith("node n3: HostTierUnfit: not root; cure: give")
    assert (await ask(kube, "node/n1")).startswith("node n1: DiskPressure: 92 %; cure: free space")
    assert (await ask(kube, "node/n2")).startswith(
        "node n2: AuthFailed: ModelVersion uid u1: 403 (1 more failed); cure: correct the Secret"
    )


async def test_who_may_not_read_from_agents_still_gets_the_line_and_learns_what_is_missing():
    kube = Kube(Forbidden("no"), cachenodes={"n1": having(ALIVE)})
    line, note = (await ask(kube, "node/n1")).splitlines()
    assert line == "node n1: AgentAlive"
    assert "Role modelcache-why there allows it" in note


async def test_decisions_of_another_release_are_no_traceback(monkeypatch):
    kube = Kube(cachenodes={"n1": having(ALIVE)})

    async def tell(*_name, **_options):
        return {"decisions": [{"at": 0, "kind": "Compacted"}]}

    monkeypatch.setattr(kube, "read_from_pod", tell)
    _, note = (await ask(kube, "node/n1")).splitlines()
    assert note.startswith("its decisions cannot be read: the agent on node n1 tells what this")


VOLUME = {"name": "modelcache", "csi": {"driver": CSI_DRIVER}}


def a_pod(*, gated=False, node=None, labels=None, conditions=(), volumes=(VOLUME,), **status):
    spec = {"volumes": list(volumes)}
    if gated:
        spec["schedulingGates"] = [{"name": GATE_PLACEMENT}]
    if node:
        spec["nodeName"] = node
    labels = {LABEL_CACHE: "m"} if labels is None else labels
    status = {"conditions": conditions, **status}
    return {"metadata": {"labels": labels}, "spec": spec, "status": status}


def a_node(state="Downloading", reason="Downloading", message="", percent=40, ready=ALIVE):
    entry = {
        "uid": "u1",
        "state": state,
        "reason": reason,
        "message": message,
        "progressPercent": percent,
    }
    return {
        "metadata": {"name": "n1"},
        "spec": {
            "nodeUid": "n",
            "caches": [{"namespace": "search", "name": "m", "stableUid": "u1"}],
        },
        "status": {"conditions": [ready], "entries": [entry]},
    }


LOST = condition("Ready", "False", "NodeLost", "silent for 5 min")
UNASKED = {
    "metadata": {"name": "n1"},
    "spec": {"nodeUid": "n"},
    "status": {"conditions": [ALIVE]},
}
CREATING = {"state": {"waiting": {"reason": "ContainerCreating"}}}
UNSCHEDULED = {"type": "PodScheduled", "reason": "Unschedulable", "message": "0/3 nodes: full"}


@pytest.mark.parametrize(
    ("pod", "node", "said"),
    [
        pytest.param(a_pod(gated=True), None, "Waiting: it is held back until", id="gated"),
        pytest.param(
            a_pod(conditions=[UNSCHEDULED]), None, "Unschedulable: 0/3 nodes: full", id="no node"
        ),
        pytest.param(a_pod(node="n1"), None, "NoAgent: the pod's node has no", id="no agent"),
        pytest.param(
            a_pod(node="n1"), a_node(), "Downloading: on the pod's node: 40% of", id="on its way"
        ),
        pytest.param(
            a_pod(node="n1"),
            a_node("Failed", "DiskPressure", "92 % are used"),
            "DiskPressure: on the pod's node: 92 % are used; cure: free space",
            id="C54 refused under pressure",
        ),
        pytest.param(
            a_pod(node="n1"),
            UNASKED,
            "Cached: 1 verified copy",
            id="not assigned there yet: how the ModelCache stands",
        ),
        pytest.param(
            a_pod(node="n1", containerStatuses=[CREATING]),
            UNASKED,
            "ContainerCreating: no container of it is created, and no volume has asked for its "
            "model on its node; cure: `kubectl describe pod`",
            id="its kubelet has no driver, and its node no copy",
        ),
        pytest.param(
            a_pod(node="n1"),
            a_node(ready=LOST),
            "NodeLost: of node n1: silent for 5 min; cure: ",
            id="its agent is lost: what it said of its copies is old",
        ),
        pytest.param(
            a_pod(node="n1", volumes=[]),
            a_node("Cached", "Cached", percent=100),
            "NotInjected: it has no volume of csi.modelcache.io; cure: see that",
            id="made while the webhook was away",
        ),
        pytest.param(
            a_pod(node="n1", containerStatuses=[CREATING]),
            a_node("Cached", "Cached", percent=100),
            "ContainerCreating: its model is on its node, but no container of it is created; cure:",
            id="its kubelet has no driver, or its image is not there",
        ),
        pytest.param(
            a_pod(node="n1", containerStatuses=[{"state": {"running": {}}}]),
            a_node("Cached", "Cached", percent=100),
            "Cached: on the pod's node: 100% of",
            id="it runs",
        ),
    ],
)
async def test_a_pod_says_for_what_it_waits(pod, node, said):
    cache = having(condition("Ready", message="1 verified copy"))
    kube = Kube(pods={"p": pod}, modelcaches={"m": cache}, cachenodes={"n1": node})
    assert (await ask(kube, "pod/p")).startswith(f"pod search/p: {said}")


async def test_a_pod_whose_model_cannot_come_is_told_why_before_what_the_kubelet_says():
    cache = having(condition("Ready", "False", "AuthFailed", "403"))
    pod = a_pod(node="n1", containerStatuses=[CREATING])
    kube = Kube(pods={"p": pod}, modelcaches={"m": cache}, cachenodes={"n1": UNASKED})
    assert (await ask(kube, "pod/p")).startswith("pod search/p: AuthFailed: 403; cure: ")


async def test_a_pod_of_the_canary_is_told_of_the_canary():
    node = a_node()
    node["spec"]["caches"][0]["canaryUid"] = "u2"
    refused = {"uid": "u2", "state": "Failed", "reason": "QuotaExceeded", "message": "1Gi"}
    node["status"]["entries"].append(refused)
    pod = a_pod(node="n1", labels={LABEL_CACHE: "m", LABEL_TRACK: "canary"})
    kube = Kube(pods={"p": pod}, modelcaches={"m": having()}, cachenodes={"n1": node})
    assert (await ask(kube, "pod/p")).startswith("pod search/p: QuotaExceeded: on the pod's node:")


async def test_a_pod_without_a_volume_tells_what_was_left_out():
    pod = a_pod(volumes=[{"name": "scratch", "emptyDir": {}}])
    pod["metadata"]["annotations"] = {"modelcache.io/not-injected": "volume modelcache"}
    kube = Kube(pods={"p": pod}, modelcaches={"m": having()})
    assert "io: left out: volume modelcache; cure: see" in await ask(kube, "pod/p")


async def test_a_pod_with_a_name_that_stands_for_nothing_and_one_without_our_label():
    kube = Kube(pods={"p": a_pod(), "other": a_pod(labels={})})
    assert (await ask(kube, "pod/p")).startswith("pod search/p: ModelCacheNotFound: there is no")
    with pytest.raises(CliError, match=r"has no label modelcache\.io/cache"):
        await ask(kube, "pod/other")
