"""When a fresh node is let to pods."""

from __future__ import annotations

import pytest

from builders import make_book, make_demand, make_entry, make_node
from modelcache_api.names import TAINT_AGENT_NOT_READY, EntryState
from modelcache_operator.decide.eligibility import refuse_new, refuse_to_keep
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.node_taint import has_agent_taint, may_lift_taint

TAINTED = make_node(taints=[f"{TAINT_AGENT_NOT_READY}:NoExecute"])
ALL = make_demand(version="v1", copies="All")
ELSEWHERE = make_demand(version="v2", copies="All", node_selector={"pool": "other"})


def book(**fields):
    return make_book(node=TAINTED, **fields)


@pytest.mark.parametrize(
    ("fields", "demands", "waited", "expected"),
    [
        pytest.param({}, [], 0, True, id="an agent is enough where nothing belongs everywhere"),
        pytest.param({}, [ALL], 0, False, id="a model of all nodes is missing"),
        pytest.param({"entries": [make_entry("v1")]}, [ALL], 0, True, id="it is verified"),
        pytest.param({"entries": [make_entry("v1")]}, [ALL, ELSEWHERE], 0, True, id="others"),
        pytest.param(
            {"entries": [make_entry("v1", EntryState.FAILED)]}, [ALL], 299, False, id="failed"
        ),
        pytest.param({}, [ALL], 300, True, id="the time-out"),
        pytest.param({"capacity": None}, [], 0, False, id="the agent has not reported yet"),
        pytest.param({"liveness": Liveness.ABSENT}, [], 999, False, id="no agent, no lift"),
        pytest.param({"liveness": Liveness.SILENT}, [], 999, False, id="a silent agent, no lift"),
    ],
)
def test_when_it_is_lifted(fields, demands, waited, expected):
    assert may_lift_taint(book(**fields), demands, waited, 300) is expected


def test_the_taint_is_known_by_its_key():
    assert has_agent_taint(book())
    assert not has_agent_taint(make_book(node=make_node(taints=["other:NoSchedule"])))


def test_our_own_taint_keeps_no_copy_away():
    assert refuse_new(make_demand(), book()) is None
    assert refuse_to_keep(make_demand(), book()) is None
