"""C53: exactly what operator and agent may do, asked of the real authorizer."""

from __future__ import annotations

import pytest
import yaml

from contract.kube.conftest import FILES
from modelcache_testbed.waiting import wait_until

ROOT = FILES.parents[2]
SYSTEM, ELSEWHERE, EVERYWHERE = "modelcache-system", "default", None
OPERATOR, AGENT = "modelcache-operator", "modelcache-agent"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
OURS, CORE, COORDINATION = "modelcache.io", "", "coordination.k8s.io"

# (group, resource, namespace): {verb: (file, what asks for it there)}. All other verbs are refused.
LISTED = ("operator/modelcache_operator/adapters/relist.py", "self._kube.list_pages(resource")
WATCHED = ("operator/modelcache_operator/kopf_app.py", "kopf.on.event(")
APPLIED = ("operator/modelcache_operator/adapters/cluster.py", "self._kube.apply(")
UNLABELLED = ("operator/modelcache_operator/adapters/cluster.py", "merge_patch(NODES")
DELETED = ("operator/modelcache_operator/adapters/cluster.py", "delete(CACHE_NODES")
KEYED = ("operator/modelcache_operator/adapters/keyed_data.py", "self._client.get(resource")
LISTED_LEASES = ("operator/modelcache_operator/adapters/agent_leases.py", "self._kube.list(")
DELETED_LEASE = ("operator/modelcache_operator/adapters/cluster.py", "delete(LEASES")
CA_KEY = "operator/modelcache_operator/adapters/authority_store.py"
MANIFESTS = "operator/modelcache_operator/adapters/manifest_store.py"
WRITER = "operator/modelcache_operator/adapters/cluster.py"
PODS_WATCHED = ("operator/modelcache_operator/adapters/pod_watch.py", "kube.watch(PODS")
ROUTES = "operator/modelcache_operator/adapters/routes.py"
ELECTION = "crds/modelcache_kube/leases.py"
CLIENT = "crds/modelcache_kube/client.py"
AGENT_CLUSTER = "agent/modelcache_agent/adapters/kube_cluster.py"
USED = {
    OPERATOR: {
        (OURS, "modelversions", ELSEWHERE): {"list": LISTED, "watch": WATCHED},
        (OURS, "modelcaches", ELSEWHERE): {"list": LISTED, "watch": WATCHED},
        (OURS, "modelcachequotas", ELSEWHERE): {"list": LISTED, "watch": WATCHED},
        (OURS, "cachenodes", EVERYWHERE): {
            "list": LISTED,
            "watch": WATCHED,
            "create": APPLIED,
            "patch": APPLIED,
            "delete": DELETED,
        },
        (OURS, "modelversions/status", ELSEWHERE): {"patch": APPLIED},
        (OURS, "modelcaches/status", ELSEWHERE): {"patch": APPLIED},
        (OURS, "modelcachequotas/status", ELSEWHERE): {"patch": APPLIED},
        (OURS, "cachenodes/status", EVERYWHERE): {"patch": APPLIED},
        (CORE, "nodes", EVERYWHERE): {
            "get": (WRITER, "get(NODES"),
            "list": LISTED,
            "watch": WATCHED,
            "patch": UNLABELLED,
        },
        (CORE, "pods", ELSEWHERE): {
            "get": (WRITER, "get(PODS"),
            "list": LISTED,
            "watch": PODS_WATCHED,
            "patch": (WRITER, "merge_patch(PODS"),
        },
        (CORE, "secrets", ELSEWHERE): {"get": KEYED},
        (CORE, "configmaps", ELSEWHERE): {"get": KEYED},
        (CORE, "secrets", SYSTEM): {
            "get": (CA_KEY, "get(SECRETS"),
            "create": (CA_KEY, "create(SECRETS"),
            "patch": (CA_KEY, "merge_patch(SECRETS"),
        },
        (CORE, "configmaps", SYSTEM): {
            "get": (MANIFESTS, "get(CONFIG_MAPS"),
            "list": (MANIFESTS, "list(CONFIG_MAPS"),
            "create": (MANIFESTS, "create(CONFIG_MAPS"),
            "delete": (MANIFESTS, "delete(CONFIG_MAPS"),
            "patch": (CA_KEY, "self._client.apply("),
        },
        (COORDINATION, "leases", SYSTEM): {
            "get": (ELECTION, "get(LEASES"),
            "create": (ELECTION, "create(LEASES"),
            "patch": (ELECTION, "merge_patch(LEASES"),
            "list": LISTED_LEASES,
            "delete": DELETED_LEASE,
        },
        ("events.k8s.io", "events", ELSEWHERE): {
            "create": (CLIENT, "self.create(EVENTS"),
            "patch": (CLIENT, "self.merge_patch(EVENTS"),
        },
        ("authentication.k8s.io", "tokenreviews", EVERYWHERE): {
            "create": (CLIENT, "TOKEN_REVIEWS.path()")
        },
    },
    AGENT: {
        (OURS, "cachenodes", EVERYWHERE): {
            "list": (AGENT_CLUSTER, "self._kube.watch("),
            "watch": (AGENT_CLUSTER, "self._kube.watch("),
        },
        (OURS, "cachenodes/status", EVERYWHERE): {"patch": (AGENT_CLUSTER, 'subresource="status"')},
        (CORE, "nodes", EVERYWHERE): {"patch": (AGENT_CLUSTER, "self._kube.apply(")},
        (COORDINATION, "leases", SYSTEM): {
            "create": (ELECTION, "self.kube.apply(LEASES"),
            "patch": (ELECTION, "self.kube.apply(LEASES"),
        },
    },
}
# What would hurt most, asked beside the table: a slip in both is less likely.
NEVER = [
    (account, group, resource, namespace, verb)
    for account in (OPERATOR, AGENT)
    for group, resource, namespace, verb in (
        (CORE, "nodes", EVERYWHERE, "delete"),
        (CORE, "nodes", EVERYWHERE, "create"),
        (CORE, "nodes/status", EVERYWHERE, "patch"),
        (CORE, "secrets", EVERYWHERE, "list"),
        (CORE, "secrets", SYSTEM, "list"),
        (CORE, "secrets", SYSTEM, "watch"),
        (CORE, "secrets", ELSEWHERE, "create"),
        (CORE, "secrets", ELSEWHERE, "patch"),
        (CORE, "configmaps", ELSEWHERE, "list"),
        (CORE, "pods", SYSTEM, "create"),
        (CORE, "pods", ELSEWHERE, "delete"),
        (CORE, "pods/ephemeralcontainers", ELSEWHERE, "patch"),
        (CORE, "pods/exec", SYSTEM, "create"),
        (CORE, "serviceaccounts/token", SYSTEM, "create"),
        (CORE, "serviceaccounts", SYSTEM, "impersonate"),
        (COORDINATION, "leases", "kube-node-lease", "patch"),
        (COORDINATION, "leases", ELSEWHERE, "get"),
        (OURS, "modelversions", ELSEWHERE, "patch"),
        (OURS, "modelcaches", ELSEWHERE, "delete"),
        (OURS, "modelcachequotas", ELSEWHERE, "patch"),
        ("rbac.authorization.k8s.io", "clusterroles", EVERYWHERE, "escalate"),
        ("rbac.authorization.k8s.io", "clusterroles", EVERYWHERE, "bind"),
        ("rbac.authorization.k8s.io", "clusterrolebindings", EVERYWHERE, "create"),
    )
] + [
    (AGENT, CORE, "secrets", ELSEWHERE, "get"),
    (AGENT, CORE, "secrets", SYSTEM, "patch"),
    (AGENT, CORE, "pods", ELSEWHERE, "get"),
    (AGENT, CORE, "pods", ELSEWHERE, "patch"),
    (AGENT, CORE, "configmaps", SYSTEM, "get"),
    (AGENT, OURS, "cachenodes", EVERYWHERE, "patch"),
    (AGENT, OURS, "modelversions", ELSEWHERE, "list"),
    (AGENT, COORDINATION, "leases", SYSTEM, "delete"),
    (AGENT, "authentication.k8s.io", "tokenreviews", EVERYWHERE, "create"),
]
ROWS = [
    pytest.param(account, where, set(uses), id=f"{account}-{where[1]}-{where[2] or 'cluster'}")
    for account, table in USED.items()
    for where, uses in table.items()
]


def may(cluster, account, verb, group, resource, namespace) -> bool:
    plural, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
    if namespace:
        attributes["namespace"] = namespace
    spec = {
        "user": f"system:serviceaccount:{SYSTEM}:{account}",
        "groups": ["system:serviceaccounts", "system:authenticated"],
        "resourceAttributes": attributes,
    }
    review = cluster.api.create(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec}
    )
    return review["status"]["allowed"]


@pytest.mark.cluster
@pytest.mark.parametrize(("account", "where", "verbs"), ROWS)
def test_C53_allowed_is_what_is_used_and_nothing_else(installed, account, where, verbs):
    group, resource, namespace = where
    found = {v for v in VERBS if may(installed, account, v, group, resource, namespace)}
    assert found == verbs


@pytest.mark.cluster
@pytest.mark.parametrize("question", NEVER, ids=lambda q: "-".join(filter(None, q)))
def test_C53_what_would_hurt_most_is_refused(installed, question):
    account, group, resource, namespace, verb = question
    assert not may(installed, account, verb, group, resource, namespace)


@pytest.mark.parametrize("account", [OPERATOR, AGENT])
def test_C53_the_roles_hold_nothing_beside_the_table(account):
    granted = set()
    file = FILES / f"rbac-{account.removeprefix('modelcache-')}.yaml"
    for role in yaml.safe_load_all(file.read_text()):
        for rule in role.get("rules", ()):
            assert not rule.keys() - {"apiGroups", "resources", "verbs"}
            in_system = role["kind"] == "Role"
            granted |= {
                (group, resource, in_system, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    used = {
        (group, resource, namespace == SYSTEM, verb)
        for (group, resource, namespace), uses in USED[account].items()
        for verb in uses
    }
    assert granted == used


@pytest.mark.parametrize("account", [OPERATOR, AGENT])
def test_C53_every_verb_of_the_table_is_asked_for_by_a_line_of_code(account):
    for where, uses in USED[account].items():
        for verb, (file, call) in uses.items():
            code = "".join((ROOT / file).read_text().split())
            assert "".join(call.split()) in code, f"nothing uses {verb} of {where}"


# Only where the chart's rollouts.httpRoutes is on: a role of its own.
ROUTE_RIGHTS = {
    "get": (ROUTES, "self._kube.get(HTTP_ROUTES"),
    "list": (ROUTES, "kube.watch(HTTP_ROUTES"),
    "watch": (ROUTES, "kube.watch(HTTP_ROUTES"),
    "patch": (ROUTES, "self._kube.json_patch(HTTP_ROUTES"),
}


@pytest.mark.cluster
def test_C53_routes_are_the_operators_business_only_where_they_are_enabled(installed):
    question = (OPERATOR, "gateway.networking.k8s.io", "httproutes", ELSEWHERE)

    def allowed():
        account, *where = question
        return {verb for verb in VERBS if may(installed, account, verb, *where)}

    file = FILES / "rbac-routes.yaml"
    # Suites that share the cluster may have them on, and need them later.
    were_there = bool(allowed())
    installed.kubectl("delete", "--ignore-not-found", "-f", str(file))
    try:
        wait_until(lambda: not allowed(), seconds=20, what="the end of the rights on routes")
        installed.apply(file)
        wait_until(
            lambda: allowed() == ROUTE_RIGHTS.keys(), seconds=20, what="the rights on routes"
        )
        group, resource = question[1:3]
        assert not may(installed, OPERATOR, "patch", group, f"{resource}/status", ELSEWHERE)
        assert not may(installed, OPERATOR, "patch", group, "gateways", ELSEWHERE)
    finally:
        if were_there:
            installed.apply(file)
        else:
            installed.kubectl("delete", "--ignore-not-found", "-f", str(file))


def test_C53_every_right_on_routes_is_asked_for_by_a_line_of_code():
    (rule,) = next(iter(yaml.safe_load_all((FILES / "rbac-routes.yaml").read_text())))["rules"]
    assert set(rule["verbs"]) == ROUTE_RIGHTS.keys()
    assert rule["resources"] == ["httproutes"]
    for file, call in ROUTE_RIGHTS.values():
        assert call in "".join((ROOT / file).read_text().split())
