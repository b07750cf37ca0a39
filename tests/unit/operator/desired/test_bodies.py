from __future__ import annotations

import pytest

from builders import NOW, make_cache, make_cache_node, make_condition, make_node
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec
from modelcache_api.v1alpha1.model_cache import CopiesStatus, ModelCacheStatus
from modelcache_operator.desired.cache_node import build_cache_node, build_node_conditions
from modelcache_operator.desired.label_removal import build_label_removal
from modelcache_operator.desired.status import build_removals, build_status


def test_a_cache_node_is_owned_by_its_node_and_never_says_null():
    body = build_cache_node(make_node("n1"), CacheNodeSpec(node_uid="uid-n1"))
    assert body == {
        "metadata": {
            "name": "n1",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}
            ],
        },
        "spec": {"nodeUid": "uid-n1", "entries": [], "caches": []},
    }


def test_the_operators_share_of_a_cache_nodes_status_is_its_condition_alone():
    body = build_node_conditions(make_cache_node("n1"), [make_condition(since=NOW)])
    assert body["metadata"] == {"name": "n1", "uid": "cn-n1"}
    assert list(body["status"]) == ["conditions"]
    assert body["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-31T12:00:00Z"


def test_a_status_body_names_the_very_object_and_leaves_unknowns_out():
    status = ModelCacheStatus(observed_generation=3, copies=CopiesStatus(wanted=2))
    body = build_status(make_cache("c1"), status)
    assert body["metadata"] == {"name": "c1", "namespace": "search", "uid": "uid-search-c1"}
    assert body["status"]["observedGeneration"] == 3
    assert "sizeBytes" not in body["status"]


def test_only_our_own_labels_can_be_removed():
    node = make_node("n1")
    body = build_label_removal(node, ["cache.modelcache.io/b", "cache.modelcache.io/a"])
    assert body == {
        "metadata": {
            "uid": "uid-n1",
            "labels": {"cache.modelcache.io/a": None, "cache.modelcache.io/b": None},
        }
    }
    with pytest.raises(ValueError, match="not our labels"):
        build_label_removal(node, ["kubernetes.io/hostname"])


@pytest.mark.parametrize(
    ("found", "removals"),
    [
        pytest.param({"copies": {"wanted": 2}, "tracks": []}, {}, id="ours"),
        pytest.param({"copies": {"wanted": 2}}, {}, id="less than ours"),
        pytest.param({"progress": "9%"}, {"progress": None}, id="a field"),
        pytest.param(
            {"copies": {"wanted": 2, "ready": 9}}, {"copies": {"ready": None}}, id="in it"
        ),
        pytest.param({"tracks": [{"name": "x"}]}, {"tracks": []}, id="an item of a list"),
    ],
)
def test_what_others_put_into_a_status_is_removed(found, removals):
    assert build_removals(found, {"copies": {"wanted": 2}, "tracks": []}) == removals
