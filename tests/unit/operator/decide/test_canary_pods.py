"""Which pods of a canary's track are counted, and for which version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import make_cache_node, make_pod_view
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.cache_node import CanaryPod
from modelcache_operator.decide.canary_pods import CanaryPods, count_canary_pods
from modelcache_operator.decide.world import NodeName, Uid

POD = make_pod_view("p1", track="canary", node=NodeName("n1"), is_ready=True)
OTHER = make_pod_view("p2", track="canary", node=NodeName("n1"))


def node(name="n1", **rows):
    """A CacheNode that tells of pods by name, with the version that each shows."""
    made = make_cache_node(name)
    told = tuple(CanaryPod(uid=f"uid-{pod}", version=uid) for pod, uid in rows.items())
    return replace(made, status=made.status.model_copy(update={"canary_pods": told}))


def count(*pods, canary="v3", nodes=()):
    known = {found.name: found for found in nodes}
    return count_canary_pods(pods, Uid(canary), known.get)


@pytest.mark.parametrize(
    ("nodes", "others"),
    [
        pytest.param([node(p1="v3")], 0, id="it shows the canary"),
        pytest.param([node(p1="v2")], 1, id="it shows the canary before"),
        pytest.param([node(p2="v3")], 1, id="another pod shows it"),
        pytest.param([node(p1="v2", p2="v3")], 1, id="also beside one that shows another"),
        pytest.param([node()], 1, id="its agent, of an older release perhaps, says nothing"),
        pytest.param([], 1, id="its node has no agent"),
        pytest.param([node(), node("n2", p1="v3")], 1, id="the agent of another node says so"),
    ],
)
def test_a_pod_counts_for_what_the_agent_of_its_own_node_says_that_it_shows(nodes, others):
    found = count(POD, nodes=nodes)
    assert (found.total, found.ready, found.others) == (1, 1, others)
    assert found.are_fit is not bool(others)
    assert found.ends_by_itself is not bool(others)


def test_a_pod_without_a_node_shows_nothing():
    assert count(replace(POD, node=None), nodes=[node(p1="v3")]).others == 1


@pytest.mark.parametrize(
    "changes",
    [{"is_over": True}, {"is_terminating": True}, {"track": "stable"}, {"track": "green"}],
)
def test_who_takes_no_traffic_of_the_canary_is_not_counted(changes):
    assert count(replace(POD, **changes)) == CanaryPods()


def test_a_pod_that_is_not_ready_waits_whatever_it_shows():
    found = count(POD, replace(OTHER, is_cold=True), nodes=[node(p1="v3")])
    assert (found.total, found.ready, found.others, found.cold) == (2, 1, 0, 1)
    assert not found.are_fit
    assert found.describe() == (
        Reason.CANARY_PODS_NOT_READY,
        "1 of 2 pods of the canary are Ready, 1 are being warmed up",
    )


def test_a_pod_of_another_version_is_told_with_what_to_do():
    reason, message = count(POD, nodes=[node(p1="v2")]).describe()
    assert reason is Reason.CANARY_PODS_NOT_READY
    assert message == (
        "1 of 1 pods of the canary are Ready, and 1 of these show another version, or none that an "
        "agent knows of: restart them, unless their node's agent is still to be upgraded"
    )


def test_a_warm_up_that_failed_is_told_first():
    failed = replace(OTHER, is_cold=True, warm_up_failure="exit code 1")
    assert count(POD, failed).describe() == (
        Reason.CANARY_WARM_UP_FAILED,
        "1 of 2 pods of the canary are Ready; the warm-up of pod p2: exit code 1",
    )


def test_without_pods_there_is_nothing_to_wait_for():
    assert count().are_fit
