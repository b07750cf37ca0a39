"""Each guard attacked with the real tokens of agent, operator, clean-up and a mighty tenant."""

from __future__ import annotations

import pytest

from contract.guards.conftest import API, KEY, LEASES, POLICY, labelled, lease
from fakes.helm import NAMESPACE
from modelcache_testbed.errors import ApiError
from modelcache_testbed.kube_api import MERGE_PATCH
from modelcache_testbed.waiting import wait_until

pytestmark = pytest.mark.cluster
NODE, OTHER = "/api/v1/nodes/g1", "/api/v1/nodes/g2"
OWN_STATUS, OTHER_STATUS = f"{API}/cachenodes/g1/status", f"{API}/cachenodes/g2/status"
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "AgentAlive",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
UID = "00000000-0000-0000-0000-000000000000"
TAINT = {"key": "dedicated", "value": "mine", "effect": "NoSchedule"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": UID}


def patch(path, body):
    return lambda api: api.patch(path, body)


def create(path, body):
    return lambda api: api.create(path, body)


def delete(path):
    return lambda api: api.delete(path)


def spec(**fields):
    return {"spec": fields}


def named(kind, name, **more):
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}} | more


ATTACKS = [
    # --- the agent of g1 ------------------------------------------------------------------
    ("agent", "another node's label", patch(OTHER, labelled(**{KEY: "disk"})), "only that Node"),
    ("agent", "a foreign label", patch(NODE, labelled(pool="mine")), "begin with cache."),
    ("agent", "a foreign label's removal", patch(NODE, labelled(pool=None)), "begin with cache."),
    ("agent", "a lookalike prefix", patch(NODE, labelled(**{"cache.modelcache.io.evil/x": "disk"})),
     "begin with cache."),
    ("agent", "an unknown value", patch(NODE, labelled(**{KEY: "tape"})), "disk, host or gpu"),
    ("agent", "a taint", patch(NODE, spec(taints=[TAINT])), "nothing of a Node but labels"),
    ("agent", "a cordon", patch(NODE, spec(unschedulable=True)), "nothing of a Node but labels"),
    ("agent", "an annotation", patch(NODE, {"metadata": {"annotations": {"a": "b"}}}),
     "nothing of a Node but labels"),
    ("agent", "a finalizer", patch(NODE, {"metadata": {"finalizers": ["a.example/b"]}}),
     "nothing of a Node but labels"),
    ("agent", "its node's status", patch(f"{NODE}/status", {"status": {"capacity": {"x": "1"}}}),
     "cannot patch resource"),
    ("agent", "a Node", create("/api/v1/nodes", named("Node", "g9")), "cannot create resource"),
    ("agent", "its own Node's end", delete(NODE), "cannot delete resource"),
    ("agent", "another CacheNode's status", patch(OTHER_STATUS, {"status": {"models": 7}}),
     "only the CacheNode of that node"),
    ("agent", "the operator's condition", patch(OWN_STATUS, {"status": {"conditions": [READY]}}),
     "conditions of a CacheNode are the operator's"),
    ("agent", "its own orders", patch(f"{API}/cachenodes/g1", spec(entries=[])),
     "cannot patch resource"),
    ("agent", "another agent's Lease", create(LEASES, lease("modelcache-agent-g2")),
     "only the Lease modelcache-agent-g1"),
    ("agent", "its Lease in another's name", create(LEASES, lease("modelcache-agent-g1", "g2")),
     "only the Lease modelcache-agent-g1"),
    ("agent", "the leader's Lease", create(LEASES, lease("modelcache-operator-leader")),
     "only the Lease modelcache-agent-g1"),
    # --- the operator ---------------------------------------------------------------------
    ("operator", "a label of ours", patch(NODE, labelled(**{KEY: "disk"})), "cache.modelcache.io/"),
    ("operator", "a foreign label", patch(NODE, labelled(pool="other")), "takes labels away"),
    ("operator", "a foreign label's removal", patch(NODE, labelled(pool=None)),
     "takes labels away"),
    ("operator", "a taint", patch(NODE, spec(taints=[TAINT])), "which it lifts"),
    ("operator", "a cordon", patch(NODE, spec(unschedulable=True)), "which it lifts"),
    ("operator", "an annotation", patch(NODE, {"metadata": {"annotations": {"a": "b"}}}),
     "labels and its own taint"),
    ("operator", "the end of a Node", delete(NODE), "cannot delete resource"),
    # --- a tenant who may do anything, and the administrator -------------------------------
    ("tenant", "a label of ours", patch(NODE, labelled(**{KEY: "disk"})), "agent alone"),
    ("tenant", "a label of ours by the status", patch(f"{NODE}/status", labelled(**{KEY: "disk"})),
     "agent alone"),
    ("tenant", "a Node that is born with a label of ours",
     create("/api/v1/nodes", named("Node", "g9") | labelled(**{KEY: "disk"})
            | {"metadata": {"name": "g9", "labels": {KEY: "disk"}}}), "agent alone"),
    ("tenant", "a CacheNode",
     create(f"{API}/cachenodes", {"apiVersion": "modelcache.io/v1alpha1", "kind": "CacheNode",
            "metadata": {"name": "g9"}, "spec": {"nodeUid": UID}}),
     "operator and the node's agent alone"),
    ("tenant", "an agent's orders", patch(f"{API}/cachenodes/g1", spec(entries=[])),
     "operator and the node's agent alone"),
    ("tenant", "an agent's report", patch(OWN_STATUS, {"status": {"models": 9}}),
     "operator and the node's agent alone"),
    ("tenant", "a CacheNode that stays when it is deleted",
     patch(f"{API}/cachenodes/g1", {"metadata": {"finalizers": ["a.example/b"]}}),
     "finalizers and owners of a CacheNode"),
    ("tenant", "a CacheNode that goes with its owner",
     patch(f"{API}/cachenodes/g1", {"metadata": {"ownerReferences": [OWNER]}}),
     "finalizers and owners of a CacheNode"),
    ("admin", "a label of ours, even as system:masters", patch(NODE, labelled(**{KEY: "disk"})),
     "agent alone"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("who", "attack", "message"),
    [
        pytest.param(who, attack, message, id=f"{who} tries {what}")
        for who, what, attack, message in ATTACKS
    ],
)
def test_refused(guarded, who, attack, message):
    before = [guarded.node(name)["metadata"]["resourceVersion"] for name in ("g1", "g2")]
    with pytest.raises(ApiError) as refusal:
        attack(getattr(guarded, who))
    assert refusal.value.status == 403
    assert message in str(refusal.value)
    after = [guarded.node(name)["metadata"]["resourceVersion"] for name in ("g1", "g2")]
    assert after == before


def test_cleanup_only_takes_away(guarded):
    guarded.agent.patch(NODE, labelled(**{KEY: "disk"}))
    with pytest.raises(ApiError, match="takes labels away"):
        guarded.cleanup.patch(NODE, labelled(pool=None))
    with pytest.raises(ApiError, match=r"cache\.modelcache\.io/"):
        guarded.cleanup.patch(OTHER, labelled(**{KEY: "disk"}))
    guarded.cleanup.patch(NODE, labelled(**{KEY: None}))
    assert KEY not in guarded.labels("g1")


def test_an_agent_does_its_work(guarded):
    guarded.agent.patch(NODE, labelled(**{KEY: "disk"}))
    guarded.agent.patch(NODE, labelled(**{KEY: "gpu"}))
    assert guarded.labels("g1")[KEY] == "gpu"
    guarded.agent.patch(OWN_STATUS, {"status": {"models": 3, "agentVersion": "1"}})
    guarded.agent.create(LEASES, lease("modelcache-agent-g1"))
    guarded.agent.patch(f"{LEASES}/modelcache-agent-g1", spec(leaseDurationSeconds=301))
    guarded.agent.patch(NODE, labelled(**{KEY: None}))
    assert KEY not in guarded.labels("g1")


def test_the_operator_does_its_work(guarded):
    guarded.agent.patch(NODE, labelled(**{KEY: "disk"}))
    guarded.operator.patch(NODE, labelled(**{KEY: None}))
    assert KEY not in guarded.labels("g1")
    guarded.operator.patch(f"{API}/cachenodes/g1", spec(entries=[]))
    guarded.operator.patch(OWN_STATUS, {"status": {"conditions": [READY]}})
    guarded.agent.patch(OWN_STATUS, {"status": {"models": 4}})
    (ready,) = guarded.admin.get(f"{API}/cachenodes/g1")["status"]["conditions"]
    assert ready.items() >= READY.items()


def test_the_operator_lifts_the_taint_of_a_fresh_node_and_no_other(guarded):
    own = {"key": "modelcache.io/agent-not-ready", "effect": "NoSchedule"}
    guarded.admin.patch(OTHER, spec(taints=[TAINT, own]))
    with pytest.raises(ApiError, match="which it lifts"):
        guarded.operator.patch(OTHER, spec(taints=[own]))
    with pytest.raises(ApiError, match="which it lifts"):
        guarded.operator.patch(OTHER, spec(taints=[TAINT], unschedulable=True))
    guarded.operator.patch(OTHER, spec(taints=[TAINT]))
    with pytest.raises(ApiError, match="which it lifts"):
        guarded.operator.patch(OTHER, spec(taints=[TAINT, own]))
    assert guarded.node("g2")["spec"]["taints"] == [TAINT]
    guarded.admin.patch(OTHER, spec(taints=[]))


OUR_GATE, OTHER_GATE = {"name": "modelcache.io/placement"}, {"name": "team.example/quota"}
PODS = "/api/v1/namespaces/tenant/pods"
STRATEGIC = "application/strategic-merge-patch+json"
TERMS = [{"matchExpressions": [{"key": KEY, "operator": "Exists"}]}]
AFFINITY = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": TERMS}}
}


def gated(name, *gates):
    container = {"name": "main", "image": "app:1"}
    return named("Pod", name, spec={"containers": [container], "schedulingGates": list(gates)})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(spec(containers=[{"name": "main", "image": "evil"}]), id="another image"),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, id="a label"),
        pytest.param({"metadata": {"annotations": {"a": "b"}}}, id="an annotation"),
        pytest.param({"spec": {"schedulingGates": []}}, id="another's gate"),
        pytest.param(
            {"spec": {"schedulingGates": [OTHER_GATE], "nodeSelector": {"a": "b"}}},
            id="a node selector",
        ),
    ],
)
def test_the_operator_lifts_its_own_gate_and_nothing_else(guarded, fresh_name, body):
    guarded.tenant.create(PODS, gated(fresh_name, OTHER_GATE, OUR_GATE))
    # By name within lists, so that nothing else of the container is touched.
    merge = STRATEGIC if "containers" in body.get("spec", {}) else MERGE_PATCH
    with pytest.raises(ApiError, match="nothing but its own scheduling gate"):
        guarded.operator._call("PATCH", f"{PODS}/{fresh_name}", body, merge)
    lift = {"schedulingGates": [OTHER_GATE], "affinity": AFFINITY}
    guarded.operator.patch(f"{PODS}/{fresh_name}", spec(**lift))
    assert guarded.admin.get(f"{PODS}/{fresh_name}")["spec"]["schedulingGates"] == [OTHER_GATE]
    # Now it has no business there any more.
    with pytest.raises(ApiError, match="only to pods with the scheduling gate"):
        guarded.operator.patch(f"{PODS}/{fresh_name}", {"metadata": {"labels": {"a": "b"}}})
    guarded.tenant.delete(f"{PODS}/{fresh_name}")


def test_status_of_users_objects_is_the_operators(guarded):
    version = {
        "apiVersion": "modelcache.io/v1alpha1",
        "kind": "ModelVersion",
        "metadata": {"name": "m"},
        "spec": {"model": "a/b", "source": {"uri": "s3://bucket/m"}},
    }
    path = f"{API}/namespaces/tenant/modelversions"
    guarded.tenant.create(path, version)
    digest = "sha256:" + "0" * 64
    with pytest.raises(ApiError, match="written by the operator alone"):
        guarded.tenant.patch(f"{path}/m/status", {"status": {"contentDigest": digest}})
    guarded.operator.patch(f"{path}/m/status", {"status": {"contentDigest": digest}})
    guarded.tenant.patch(f"{path}/m", labelled(team="a"))
    guarded.tenant.delete(f"{path}/m")


def test_people_may_take_our_labels_away_and_delete_cache_nodes(guarded, fresh_name):
    guarded.agent.patch(NODE, labelled(**{KEY: "disk"}))
    guarded.tenant.patch(NODE, labelled(**{KEY: None}))
    assert KEY not in guarded.labels("g1")
    body = {
        "apiVersion": "modelcache.io/v1alpha1",
        "kind": "CacheNode",
        "metadata": {"name": fresh_name, "finalizers": ["a.example/b"]},
        "spec": {"nodeUid": UID},
    }
    guarded.operator.create(f"{API}/cachenodes", body)
    guarded.tenant.patch(f"{API}/cachenodes/{fresh_name}", labelled(note="x"))
    # As the garbage collector takes the finalizer of a deletion away.
    guarded.tenant.patch(f"{API}/cachenodes/{fresh_name}", {"metadata": {"finalizers": None}})
    # As `kubectl modelcache evict` does.
    wish = {"evict.modelcache.io/0d8c": "2026-01-01T00:00:00+00:00"}
    guarded.tenant.patch(f"{API}/cachenodes/{fresh_name}", {"metadata": {"annotations": wish}})
    guarded.tenant.delete(f"{API}/cachenodes/{fresh_name}")


def test_kubelets_go_on_beside_a_label_of_ours_and_cannot_set_one(guarded):
    guarded.agent.patch(NODE, labelled(**{KEY: "disk"}))
    kubelet = guarded.connect(
        **{"Impersonate-User": "system:node:g1", "Impersonate-Group": "system:nodes"}
    )
    kubelet.patch(f"{NODE}/status", {"status": {"allocatable": {"cpu": "30"}}})
    kubelet.patch(NODE, labelled(zone="a"))
    assert guarded.labels("g1")[KEY] == "disk"
    for path in (NODE, f"{NODE}/status"):
        with pytest.raises(ApiError, match="agent alone"):
            kubelet.patch(path, labelled(**{f"{KEY}x": "disk"}))
    guarded.agent.patch(NODE, labelled(**{KEY: None}))


def test_an_agents_token_without_a_node_writes_nothing(guarded):
    """A token of the right account that is bound to no pod: its claims name no node."""
    token = guarded.cluster.kubectl("create", "token", "modelcache-agent", f"-n={NAMESPACE}")
    unbound = guarded.connect(bound=True, Authorization=f"Bearer {token.strip()}")
    for path, body in (
        (NODE, labelled(**{KEY: "disk"})),
        (OWN_STATUS, {"status": {"models": 1}}),
        (f"{LEASES}/modelcache-agent-g1", spec(leaseDurationSeconds=1)),
    ):
        with pytest.raises(ApiError) as refusal:
            unbound.patch(path, body)
        assert refusal.value.status in {403, 404}


def test_every_expression_passes_the_type_checker(guarded):
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def ours():
        return [
            item
            for item in guarded.admin.get(path)["items"]
            if item["metadata"]["name"].startswith("modelcache-")
        ]

    wait_until(
        lambda: all(
            item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"]
            for item in ours()
        ),
        seconds=60,
        what=f"the {POLICY}s being type-checked",
    )
    assert len(ours()) >= 7
    warnings = {
        item["metadata"]["name"]: item["status"].get("typeChecking", {}).get("expressionWarnings")
        for item in ours()
    }
    assert {name: found for name, found in warnings.items() if found} == {}
