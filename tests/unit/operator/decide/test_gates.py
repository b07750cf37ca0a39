"""When a gated pod is let through, and with what requirement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import make_book, make_cache, make_entry, make_node, make_pod_view, make_version
from modelcache_api.names import EntryState, Reason
from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_operator.decide.gates import GateFacts, gate_event, judge_gate
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.world import PodConstraints

KEY = "cache.modelcache.io/m-0123456789abcdef"
VERSION = make_version(uid="v1", node_label_key=KEY)
LABELLED = make_node("warm", labels={KEY: "disk"})


def judge(*books, version=VERSION, waited=0.0, cache=None, constraints=None):
    pod = make_pod_view("p", cache="c1", is_gated=True)
    pod = replace(pod, constraints=constraints or PodConstraints())
    return judge_gate(GateFacts(pod, cache, version, books, waited, 30.0))


def fetching(state=EntryState.DOWNLOADING, **more):
    return make_book("cold", entries=[make_entry("v1", state)], **more)


def holding(**more):
    return make_book("warm", node=more.pop("node", LABELLED), entries=[make_entry("v1")], **more)


@pytest.mark.parametrize("tier", ["disk", "host", "gpu"])
def test_a_node_labelled_in_any_tier_lets_it_through_to_such_nodes_alone(tier):
    verdict = judge(holding(node=make_node("warm", labels={KEY: tier})), fetching())
    assert (verdict.lift, verdict.require, verdict.reason) == (True, KEY, Reason.CACHED)


@pytest.mark.parametrize(
    "book",
    [
        pytest.param(fetching(), id="downloading"),
        pytest.param(fetching(EntryState.VERIFYING), id="verifying"),
        pytest.param(fetching(EntryState.PENDING), id="pending"),
        pytest.param(holding(node=make_node("warm")), id="verified and about to be labelled"),
        pytest.param(make_book("cold", sizes={"v1": 1}), id="placed and not noticed yet"),
    ],
)
def test_it_waits_while_the_model_is_on_its_way_and_no_longer_than_the_time_out(book):
    assert judge(book, waited=29.9).lift is False
    verdict = judge(book, waited=30.0)
    assert (verdict.lift, verdict.require, verdict.reason) == (True, None, Reason.WAITING)


@pytest.mark.parametrize(
    "books",
    [
        pytest.param((), id="nobody should hold it"),
        pytest.param((fetching(EntryState.FAILED),), id="failed"),
        pytest.param((fetching(EntryState.EVICTED),), id="evicted"),
        pytest.param((make_book("cold"),), id="not wanted here any more"),
        pytest.param((holding(liveness=Liveness.LOST),), id="its agent is lost"),
        pytest.param(
            (holding(node=make_node("warm", labels={KEY: "disk"}, is_unschedulable=True)),),
            id="cordoned",
        ),
    ],
)
def test_it_is_let_through_at_once_where_there_is_nothing_to_wait_for(books):
    verdict = judge(*books)
    assert (verdict.lift, verdict.require) == (True, None)
    assert verdict.reason is Reason.NO_ELIGIBLE_NODE


def test_an_unknown_version_holds_nobody_up():
    assert judge(fetching(), version=None).lift is True


def test_C31_a_holder_that_the_pod_may_not_use_does_not_count():
    pool = PodConstraints(node_selector=(("pool", "b"),))
    verdict = judge(holding(), constraints=pool)
    assert (verdict.lift, verdict.require) == (True, None)


def test_what_is_told_names_the_progress():
    status = ModelCacheStatus(copies_summary="1/3", progress="40%")
    cache = replace(make_cache(), status=status)
    verdict = judge(fetching(), cache=cache)
    note = gate_event(make_pod_view("p"), verdict)
    assert "1/3 copies, 40% of the bytes" in note.note
    assert (note.regarding.kind, note.regarding.api_version) == ("Pod", "v1")
    assert not note.is_warning
    assert "has no status yet" in judge(fetching()).message
