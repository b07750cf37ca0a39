"""C53: exactly what operator and agent may do, asked of the real authorizer."""

from __future__ import annotations

import pytest

from contract.kube.conftest import FILES

pytestmark = pytest.mark.cluster
SYSTEM, ELSEWHERE, EVERYWHERE = "modelcache-system", "default", None
OPERATOR, AGENT = "modelcache-operator", "modelcache-agent"
READ = ("get", "list", "watch")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
OURS, CORE, COORDINATION = "modelcache.io", "", "coordination.k8s.io"

# (group, resource, namespace): the verbs allowed there. All others are refused.
ALLOWED = {
    OPERATOR: {
        (OURS, "modelversions", ELSEWHERE): READ,
        (OURS, "modelcaches", ELSEWHERE): READ,
        (OURS, "cachenodes", EVERYWHERE): (*READ, "create", "patch", "delete"),
        (OURS, "modelversions/status", ELSEWHERE): ("patch", "update"),
        (OURS, "modelcaches/status", ELSEWHERE): ("patch", "update"),
        (OURS, "cachenodes/status", EVERYWHERE): ("patch", "update"),
        (CORE, "nodes", EVERYWHERE): (*READ, "patch"),
        (CORE, "nodes/status", EVERYWHERE): (),
        (CORE, "secrets", ELSEWHERE): ("get",),
        (CORE, "secrets", SYSTEM): ("get", "create", "update", "patch"),
        (CORE, "configmaps", ELSEWHERE): ("get",),
        (CORE, "configmaps", SYSTEM): (*READ, "create", "patch", "delete"),
        (COORDINATION, "leases", SYSTEM): (*READ, "create", "update", "patch", "delete"),
        (COORDINATION, "leases", ELSEWHERE): (),
        (COORDINATION, "leases", "kube-node-lease"): (),
        ("events.k8s.io", "events", ELSEWHERE): ("create", "patch"),
        (CORE, "pods", SYSTEM): ("get", "list", "watch", "patch"),
        (CORE, "pods", ELSEWHERE): ("get", "list", "watch", "patch"),
        (CORE, "serviceaccounts/token", SYSTEM): (),
        ("authentication.k8s.io", "tokenreviews", EVERYWHERE): ("create",),
        ("rbac.authorization.k8s.io", "clusterroles", EVERYWHERE): (),
    },
    AGENT: {
        (OURS, "cachenodes", EVERYWHERE): READ,
        (OURS, "cachenodes/status", EVERYWHERE): ("patch",),
        (OURS, "modelversions", ELSEWHERE): (),
        (OURS, "modelcaches", ELSEWHERE): (),
        (CORE, "nodes", EVERYWHERE): ("get", "patch"),
        (CORE, "nodes/status", EVERYWHERE): (),
        (CORE, "secrets", SYSTEM): (),
        (CORE, "configmaps", SYSTEM): (),
        (CORE, "pods", SYSTEM): (),
        (COORDINATION, "leases", SYSTEM): ("get", "create", "update", "patch"),
        (COORDINATION, "leases", "kube-node-lease"): (),
        ("events.k8s.io", "events", SYSTEM): (),
        (CORE, "serviceaccounts/token", SYSTEM): (),
        ("authentication.k8s.io", "tokenreviews", EVERYWHERE): (),
    },
}
ROWS = [
    pytest.param(account, where, verbs, id=f"{account}-{where[1]}-{where[2] or 'cluster'}")
    for account, table in ALLOWED.items()
    for where, verbs in table.items()
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


@pytest.mark.parametrize(("account", "where", "verbs"), ROWS)
def test_C53_allowed_is_what_is_used_and_nothing_else(installed, account, where, verbs):
    group, resource, namespace = where
    found = {v for v in VERBS if may(installed, account, v, group, resource, namespace)}
    assert found == set(verbs)


def test_no_rule_holds_a_wildcard():
    for name in ("rbac-operator.yaml", "rbac-agent.yaml"):
        lines = (FILES / name).read_text().splitlines()
        assert not [line for line in lines if "*" in line.partition("#")[0]]
