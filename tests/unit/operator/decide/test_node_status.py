from __future__ import annotations

from dataclasses import replace

import pytest

from builders import EARLIER, NOW, make_cache_node, make_condition, make_entry, make_node
from modelcache_api.names import NODE_LABEL_PREFIX, Condition, EntryState, Reason
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.node_status import labels_to_remove, make_node_conditions

OURS = NODE_LABEL_PREFIX + "m1-0123456789abcdef"


@pytest.mark.parametrize(
    ("liveness", "expected"),
    [
        (Liveness.ALIVE, ("True", Reason.AGENT_ALIVE)),
        (Liveness.SILENT, ("True", Reason.AGENT_ALIVE)),
        (Liveness.LOST, ("False", Reason.NODE_LOST)),
        (Liveness.ABSENT, ("False", Reason.NODE_LOST)),
    ],
)
def test_the_ready_condition_says_whether_the_agent_is_there(liveness, expected):
    (condition,) = make_node_conditions(make_cache_node(), liveness, NOW)
    assert (condition.status, condition.reason) == expected


@pytest.mark.parametrize("liveness", [Liveness.ALIVE, Liveness.LOST])
def test_C22_a_node_with_damaged_files_is_ready_and_says_so_while_it_lives(liveness):
    entries = [
        make_entry("v1"),
        make_entry("v2", EntryState.DOWNLOADING, reason=Reason.DAMAGED, message="1 of 3 pieces"),
    ]
    (condition,) = make_node_conditions(make_cache_node(entries=entries), liveness, NOW)
    if liveness is Liveness.LOST:
        assert (condition.status, condition.reason) == ("False", Reason.NODE_LOST)
        return
    assert (condition.status, condition.reason) == ("True", Reason.DAMAGED)
    assert "files of 1 of 2 models" in condition.message
    assert "uid v2" in condition.message


def test_conditions_of_others_are_left_to_them_and_times_are_kept():
    seen = [make_condition(Reason.AGENT_ALIVE), make_condition(kind="Other")]
    (condition,) = make_node_conditions(make_cache_node(conditions=seen), Liveness.ALIVE, NOW)
    assert condition.type == Condition.READY
    assert condition.last_transition_time == EARLIER


@pytest.mark.parametrize(
    ("pressure", "kubelet_pressed", "said"),
    [
        pytest.param(None, False, None, id="none"),
        pytest.param("92 % are used", False, "92 % are used", id="the agent's watermark"),
        pytest.param("92 % are used", True, "92 % are used", id="both: the arithmetic"),
        pytest.param(None, True, "the kubelet says DiskPressure", id="the Node's own condition"),
    ],
)
def test_C54_disk_pressure_is_a_condition_of_its_own_while_it_lasts(
    pressure, kubelet_pressed, said
):
    node = make_cache_node(capacity=100)
    tiers = tuple(t.model_copy(update={"pressure": pressure}) for t in node.status.tiers)
    node = replace(node, status=node.status.model_copy(update={"tiers": tiers}))
    found = make_node_conditions(node, Liveness.ALIVE, NOW, kubelet_pressed=kubelet_pressed)
    told = [c for c in found if c.type == Condition.DISK_PRESSURE]
    assert [c.status for c in told] == (["True"] if said else [])
    assert not said or told[0].message.startswith(said)


@pytest.mark.parametrize("unfit", [None, "the agent is not root"])
def test_a_node_that_cannot_lock_what_it_was_given_says_so_while_that_is_so(unfit):
    node = make_cache_node(capacity=100)
    node = replace(node, status=node.status.model_copy(update={"host_unfit": unfit}))
    told = [
        (c.status, c.reason, c.message)
        for c in make_node_conditions(node, Liveness.ALIVE, NOW)
        if c.type == Condition.HOST_TIER_UNFIT
    ]
    assert told == ([("True", Reason.HOST_TIER_UNFIT, unfit)] if unfit else [])


@pytest.mark.parametrize(
    ("accusers", "said"),
    [
        pytest.param([], None, id="nobody"),
        pytest.param(["n1"], None, id="its own word"),
        pytest.param(["n3", "n2"], "to n2, n3: check", id="two"),
        pytest.param([f"n{n}" for n in range(2, 8)], "to n2, n3, n4 and 3 more: check", id="many"),
    ],
)
def test_a_node_is_suspected_by_those_that_it_served_wrong_bytes(accusers, said):
    alive = make_condition(Reason.AGENT_ALIVE)
    suspected = make_condition(Reason.PEER_SUSPECTED, kind=Condition.PEER_SUSPECTED)
    seen = make_cache_node("n1", conditions=[alive, suspected])
    found = make_node_conditions(seen, Liveness.ALIVE, NOW, accusers)
    assert found[0].type == Condition.READY
    assert [c.reason for c in found[1:]] == ([Reason.PEER_SUSPECTED] if said else [])
    if said:
        assert said in found[1].message
        assert found[1].last_transition_time == EARLIER


@pytest.mark.parametrize(
    ("liveness", "removed"),
    [
        (Liveness.ALIVE, ()),
        (Liveness.SILENT, ()),
        (Liveness.LOST, (OURS,)),
        (Liveness.ABSENT, (OURS,)),
    ],
)
def test_C34_labels_that_nobody_answers_for_are_taken_away_and_no_other(liveness, removed):
    node = make_node(labels={OURS: "disk", "cache.example.com/x": "disk", "pool": "gpu"})
    assert labels_to_remove(node, liveness) == removed
