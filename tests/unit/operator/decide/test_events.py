from __future__ import annotations

from dataclasses import replace

import pytest

from builders import make_cache, make_cache_node, make_condition, make_version
from modelcache_api.names import Condition, Reason
from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_api.v1alpha1.rollout import TrafficStatus
from modelcache_operator.decide.events import cache_events, node_events, version_events


def moving(flag: bool):
    return make_condition(kind=Condition.RECONCILING, status=str(flag))


def told(was, became, *, is_moving=False):
    status = ModelCacheStatus(conditions=(*became, moving(is_moving)))
    return cache_events(make_cache(conditions=was), status)


CACHED = make_condition(Reason.CACHED, message="2 verified copies")
DOWNLOADING = make_condition(Reason.DOWNLOADING, "False")
NEVER = make_condition(Reason.NEVER_FITS, "False", message="too big")


@pytest.mark.parametrize(
    ("was", "became", "is_moving", "expected"),
    [
        pytest.param((), (CACHED,), False, ("Cached", False), id="the first verdict"),
        pytest.param((DOWNLOADING,), (CACHED,), False, ("Cached", False), id="it has become ready"),
        pytest.param(
            (DOWNLOADING,), (NEVER,), False, ("NeverFits", True), id="it can never become ready"
        ),
        pytest.param(
            (CACHED,), (DOWNLOADING,), True, ("Downloading", False), id="it is on its way again"
        ),
        pytest.param(
            (CACHED,),
            (make_condition(Reason.DEGRADED),),
            False,
            ("Degraded", True),
            id="ready, but less than asked for",
        ),
        pytest.param((CACHED,), (CACHED,), False, None, id="nothing has changed"),
        pytest.param(
            (CACHED,), (make_condition(Reason.CACHED, message="3"),), False, None, id="only words"
        ),
        pytest.param(
            (), (make_condition(Reason.WAITING, "False"),), True, None, id="waiting is no news"
        ),
        pytest.param(
            (),
            (make_condition(Reason.MODEL_VERSION_NOT_READY, "False"),),
            True,
            None,
            id="nor is a version that is being resolved",
        ),
        pytest.param(
            (),
            (make_condition(Reason.MODEL_VERSION_NOT_READY, "False"),),
            False,
            ("ModelVersionNotReady", True),
            id="but one that cannot be resolved is",
        ),
        pytest.param((CACHED,), (), False, None, id="no verdict at all"),
    ],
)
def test_an_event_follows_when(was, became, is_moving, expected):
    notes = told(was, became, is_moving=is_moving)
    assert [(note.reason, note.is_warning) for note in notes] == ([expected] if expected else [])


def test_an_event_names_its_object_and_carries_the_message():
    note = told((), (CACHED,))[0]
    about = note.regarding
    assert (about.kind, about.namespace, about.name) == ("ModelCache", "search", "c1")
    assert note.note == "2 verified copies"


def test_events_of_versions_and_nodes():
    version = version_events(make_version(), (make_condition(Reason.RESOLVED),))[0]
    assert (version.regarding.kind, version.note) == ("ModelVersion", "Resolved")
    lost = make_condition(Reason.NODE_LOST, "False")
    alive = make_condition(Reason.AGENT_ALIVE)
    node = node_events(make_cache_node(conditions=[alive]), (lost,))[0]
    assert (node.regarding.kind, node.regarding.namespace) == ("CacheNode", None)
    assert node.is_warning


@pytest.mark.parametrize("is_moving", [True, False], ids=["it is tried again", "it needs help"])
def test_a_source_that_cannot_be_read_is_a_warning_whoever_cures_it(is_moving):
    became = (make_condition(Reason.ENDPOINT_UNREACHABLE, "False"), moving(is_moving))
    (note,) = version_events(make_version(), became)
    assert (note.reason, note.is_warning) == ("EndpointUnreachable", True)


def test_a_thousand_nodes_that_come_up_are_no_news():
    assert node_events(make_cache_node(), (make_condition(Reason.AGENT_ALIVE),)) == ()


def test_a_suspected_node_is_told_of_once_however_many_suspect_it():
    suspected = make_condition(
        Reason.PEER_SUSPECTED, kind=Condition.PEER_SUSPECTED, message="served wrong bytes to n2"
    )
    alive = make_condition(Reason.AGENT_ALIVE)
    (note,) = node_events(make_cache_node("n1", conditions=[alive]), (alive, suspected))
    assert (note.reason, note.is_warning) == ("PeerSuspected", True)
    assert (note.regarding.kind, note.regarding.name) == ("CacheNode", "n1")
    assert note.note == "served wrong bytes to n2"
    again = suspected.model_copy(update={"message": "served wrong bytes to n2, n3"})
    assert node_events(make_cache_node("n1", conditions=[alive, suspected]), (alive, again)) == ()
    assert len(node_events(make_cache_node("n1"), (alive, suspected))) == 1, "a new one as well"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        pytest.param(Condition.DISK_PRESSURE, Reason.DISK_PRESSURE, id="C54 disk pressure"),
        pytest.param(Condition.HOST_TIER_UNFIT, Reason.HOST_TIER_UNFIT, id="an unfit host tier"),
    ],
)
def test_C54_what_a_node_lacks_is_told_once_when_it_begins(kind, reason):
    lacking = make_condition(reason, kind=kind, message="92 %")
    alive = make_condition(Reason.AGENT_ALIVE)
    (note,) = node_events(make_cache_node("n1", conditions=[alive]), (alive, lacking))
    assert (note.reason, note.is_warning, note.note) == (reason, True, "92 %")
    assert node_events(make_cache_node("n1", conditions=[alive, lacking]), (alive, lacking)) == ()


UNRESOLVED = "ModelVersion m3 is not resolved: Resolving"


def rollout(message, weight, reason=Reason.MODEL_VERSION_NOT_READY):
    """A status that says that of the canary."""
    said = make_condition(reason, "False", kind=Condition.ROLLOUT_PROGRESSING, message=message)
    traffic = TrafficStatus(stable=100 - weight, canary=weight)
    return ModelCacheStatus(conditions=(said,), traffic=traffic)


def tell(was, became):
    notes = cache_events(replace(make_cache(), status=was), became)
    return [(note.reason, note.is_warning) for note in notes]


@pytest.mark.parametrize("sentence", ["", ": the source is being listed"])
def test_that_a_canary_is_being_listed_is_no_news_with_or_without_a_sentence(sentence):
    assert tell(ModelCacheStatus(), rollout(UNRESOLVED + sentence, 0)) == []
    refused = rollout("ModelVersion m3 is not resolved: AuthFailed: no", 0)
    assert tell(ModelCacheStatus(), refused) == [("ModelVersionNotReady", True)]


@pytest.mark.parametrize("sentence", ["", ": the source is being listed"])
@pytest.mark.parametrize("before", [Reason.WEIGHT_REACHED, Reason.MODEL_VERSION_NOT_READY])
def test_a_weight_that_falls_is_told_whatever_else_is_said(sentence, before):
    fallen = rollout(UNRESOLVED + sentence, 0)
    assert tell(rollout(UNRESOLVED, 25, before), fallen) == [("ModelVersionNotReady", True)]
    assert tell(fallen, fallen) == []
