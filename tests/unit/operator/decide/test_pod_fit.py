"""May a pod run on a node: the rules of Kubernetes, as far as labels, names and taints go."""

from __future__ import annotations

import pytest

from builders import make_node
from modelcache_operator.adapters.pod_constraints import parse_constraints
from modelcache_operator.decide.pod_fit import may_run_on

NODE = make_node("n1", labels={"pool": "a", "size": "8", "text": "x"})
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def terms(*found):
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(found)}}}}


def match(key, operator, *values):
    one = {"key": key, "operator": operator}
    return {"matchExpressions": [one | ({"values": list(values)} if values else {})]}


def by_name(*names):
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, True, id="no wishes"),
        pytest.param({"nodeSelector": {"pool": "a"}}, True, id="selector met"),
        pytest.param({"nodeSelector": {"pool": "b"}}, False, id="selector not met"),
        pytest.param({"affinity": {}}, True, id="an empty affinity"),
        pytest.param({"affinity": {"nodeAffinity": {}}}, True, id="no required terms"),
        pytest.param(terms(match("pool", "In", "a", "b")), True, id="In"),
        pytest.param(terms(match("pool", "In", "b")), False, id="not In"),
        pytest.param(terms(match("pool", "NotIn", "b")), True, id="NotIn"),
        pytest.param(terms(match("none", "NotIn", "b")), True, id="NotIn of a missing label"),
        pytest.param(terms(match("pool", "Exists")), True, id="Exists"),
        pytest.param(terms(match("none", "Exists")), False, id="does not exist"),
        pytest.param(terms(match("none", "DoesNotExist")), True, id="DoesNotExist"),
        pytest.param(terms(match("size", "Gt", "7")), True, id="Gt"),
        pytest.param(terms(match("size", "Gt", "8")), False, id="not Gt"),
        pytest.param(terms(match("size", "Lt", "9")), True, id="Lt"),
        pytest.param(terms(match("text", "Gt", "1")), False, id="Gt of a text"),
        pytest.param(terms(match("none", "Lt", "1")), False, id="Lt of a missing label"),
        pytest.param(terms(match("size", "Gt")), False, id="Gt of nothing"),
        pytest.param(terms(match("pool", "Near", "a")), False, id="an operator of the future"),
        pytest.param(terms(match("pool", "In", "b"), match("pool", "In", "a")), True, id="ORed"),
        pytest.param(terms({}), False, id="an empty term matches nothing"),
        pytest.param(terms(), False, id="no term matches nothing"),
        pytest.param(terms(by_name("n1", "n2")), True, id="by name"),
        pytest.param(terms(by_name("n2")), False, id="by another name"),
        pytest.param(
            terms(match("pool", "In", "a") | by_name("n2")), False, id="label and name are ANDed"
        ),
    ],
)
def test_labels_and_names(spec, expected):
    assert may_run_on(parse_constraints(spec), NODE) is expected


@pytest.mark.parametrize(
    ("node", "tolerations", "expected"),
    [
        pytest.param(make_node(is_ready=False), [], False, id="a node that is not Ready"),
        pytest.param(make_node(is_deleted=True), [], False, id="a node on its way out"),
        pytest.param(make_node(is_unschedulable=True), [], False, id="cordoned"),
        pytest.param(
            make_node(is_unschedulable=True), [{"operator": "Exists"}], True, id="all tolerated"
        ),
        pytest.param(make_node(taints=["gpu=x:NoSchedule"]), [], False, id="tainted"),
        pytest.param(make_node(taints=["gpu=x:PreferNoSchedule"]), [], True, id="softly tainted"),
        pytest.param(
            make_node(taints=["gpu=x:NoExecute"]),
            [{"key": "gpu", "value": "x"}],
            True,
            id="Equal is the default operator",
        ),
        pytest.param(
            make_node(taints=["gpu=x:NoExecute"]),
            [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            False,
            id="tolerated for another effect",
        ),
        pytest.param(
            make_node(taints=["size=9:NoSchedule"]),
            [{"key": "size", "operator": "Gt", "value": "8"}],
            False,
            id="an operator that we do not know counts as no toleration",
        ),
    ],
)
def test_taints(node, tolerations, expected):
    assert may_run_on(parse_constraints({"tolerations": tolerations}), node) is expected
