"""What the one definition gives to each pod of the table, and what it leaves alone."""

from __future__ import annotations

import copy

import pytest

from injection.pods import KEY, LABEL, PREFERRED, ROWS, Row, cache_of, copy_of, make_pod
from modelcache_operator.injection import InjectionSettings, KnownCache, make_injection
from modelcache_operator.json_patch import add_all

SETTINGS = InjectionSettings("agent:1")
rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)


def inject(pod, cache):
    return add_all(pod, make_injection(pod, cache, SETTINGS).operations)


def keys_of(pod):
    node_affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = node_affinity.get(PREFERRED, [])
    found = [term["preference"]["matchExpressions"][0]["key"] for term in terms]
    return tuple(sorted({key for key in found if key.startswith("cache.modelcache.io/")}))


def test_the_table_is_large_enough_and_its_names_differ():
    assert len(ROWS) >= 40
    assert len({row.id for row in ROWS}) == len(ROWS)


@rows
def test_the_pod_gets_what_its_row_says(row: Row):
    result = inject(copy_of(row), cache_of(row))
    spec = result["spec"]
    init = [one["name"] for one in spec.get("initContainers", [])]
    assert (init[:1] == ["modelcache-wait"]) is row.has_wait
    assert (init[-1:] == ["modelcache-warmup"]) is row.has_warm_up
    drivers = [
        one["csi"]["driver"]
        for one in spec.get("volumes", [])
        if one["name"] == "modelcache" and "csi" in one
    ]
    assert (drivers == ["csi.modelcache.io"]) is row.has_volume
    assert keys_of(result) == row.keys
    gates = [gate["name"] for gate in spec.get("schedulingGates", [])]
    assert gates.count("modelcache.io/placement") == row.is_gated
    annotations = result["metadata"].get("annotations", {})
    lacks = annotations.get("modelcache.io/not-injected", "")
    assert lacks == ", ".join(row.lacks)


@pytest.mark.parametrize(
    ("label", "attributes"),
    [("canary", {"modelcache.io/track": "canary"}), ("stable", {}), ("", {}), ("x", {})],
)
def test_the_volume_of_a_pod_of_the_canary_says_so(label, attributes):
    pod = make_pod(labels={LABEL: "m", "modelcache.io/track": label})
    volume = inject(pod, None)["spec"]["volumes"][0]
    assert volume["csi"]["volumeAttributes"] == {LABEL: "m", **attributes}


@rows
def test_what_the_user_set_is_still_there_unchanged(row: Row):
    before = copy_of(row)
    result = inject(before, cache_of(row))
    assert before == row.pod
    assert_kept(before, result, "pod")


@rows
def test_a_second_time_changes_nothing(row: Row):
    once = inject(copy_of(row), cache_of(row))
    settled = inject(once, cache_of(row))
    assert settled == once


@rows
def test_pods_that_are_left_alone_are_equal(row: Row):
    if not row.is_injected:
        assert inject(copy_of(row), cache_of(row)) == row.pod


@rows
def test_every_reading_container_has_mount_and_path(row: Row):
    result = inject(copy_of(row), cache_of(row))
    if not row.is_injected or not row.has_volume or row.id.startswith("volume injected"):
        return
    refused = {words.removeprefix("mount in ") for words in row.lacks}
    for field in ("containers", "initContainers"):
        for container in result["spec"].get(field, []):
            if row.has_warm_up and container["name"] == "modelcache-warmup":
                continue
            paths = [m["mountPath"].rstrip("/") for m in container.get("volumeMounts", [])]
            names = [variable["name"] for variable in container.get("env", [])]
            assert len(names) == len(set(names))
            if container["name"] not in refused:
                assert paths.count("/mnt/models") == 1, container
                assert "MODELCACHE_PATH" in names


def test_offline_mode_comes_only_with_our_own_hub_cache():
    row = next(row for row in ROWS if row.id == "a hub cache of its own")
    result = inject(copy_of(row), cache_of(row))
    names = {variable["name"] for variable in result["spec"]["containers"][0]["env"]}
    assert "HF_HUB_OFFLINE" not in names


def test_C31_required_terms_are_not_touched_by_a_preference():
    row = next(row for row in ROWS if row.id == "C31: two required terms")
    node_affinity = inject(copy_of(row), cache_of(row))["spec"]["affinity"]["nodeAffinity"]
    before = row.pod["spec"]["affinity"]["nodeAffinity"]
    assert node_affinity == before | {PREFERRED: node_affinity[PREFERRED]}
    assert [term["weight"] for term in node_affinity[PREFERRED]] == [100, 60, 20]
    assert {
        term["preference"]["matchExpressions"][0]["key"] for term in node_affinity[PREFERRED]
    } == {KEY}


def test_null_members_are_as_good_as_missing_ones():
    pod = {
        "metadata": {"labels": {"modelcache.io/cache": "m"}, "annotations": None},
        "spec": {
            "containers": [{"name": "a", "env": None, "volumeMounts": None}],
            "initContainers": None,
            "volumes": None,
            "affinity": None,
        },
    }
    cache = KnownCache({"stable": KEY})
    result = inject(copy.deepcopy(pod), cache)
    plain = {
        "metadata": {"labels": pod["metadata"]["labels"]},
        "spec": {"containers": [{"name": "a"}]},
    }
    assert result == inject(plain, cache)


def assert_kept(before, after, path):
    """Every value of `before` is in `after`, lists in their order, though others may come in."""
    if isinstance(before, dict):
        for key, value in before.items():
            assert key in after, path
            assert_kept(value, after[key], f"{path}.{key}")
    elif isinstance(before, list):
        rest = iter(after)
        for item in before:
            assert any(_contains(item, other) for other in rest), f"{path}: {item}"
    else:
        assert before == after, path


def _contains(before, after) -> bool:
    try:
        assert_kept(before, after, "")
    except (AssertionError, TypeError):
        return False
    return True
