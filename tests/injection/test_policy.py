"""The policies on a real API server say the same as the definition, on the whole table."""

from __future__ import annotations

import copy
import secrets

import pytest

from injection.conftest import Door, put_cache
from injection.pods import CACHES, KEY, LABEL, ROWS, cache_of, copy_of, make_pod
from modelcache_operator.injection import InjectionSettings, make_injection
from modelcache_operator.injection_policy import build_policies
from modelcache_operator.json_patch import add_all
from modelcache_testbed.waiting import wait_until

pytestmark = pytest.mark.cluster
SETTINGS = InjectionSettings("registry.example/agent:1")
SYSTEM = "modelcache-system"
MARK = "modelcache.io/injected"
POLICIES = build_policies(SETTINGS, SYSTEM)


def remove_policies(cluster, door):
    """Ours, or those with another image that another module has installed."""
    for document in POLICIES:
        cluster.kubectl(
            "delete", document["kind"], document["metadata"]["name"], "--ignore-not-found"
        )
    wait_until(
        lambda: MARK not in door.pass_through(make_pod())["annotations"],
        seconds=30,
        what="the policies out of force",
    )


@pytest.fixture(scope="module")
def guarded(served, room, door):
    """The door, with the policies in force. They act some moments after they are stored."""
    remove_policies(served, door)
    expected = {}
    for row in ROWS:
        injection = make_injection(copy_of(row), cache_of(row), SETTINGS)
        expected[row.id] = door.pass_through(add_all(copy_of(row), injection.operations))
    served.apply(POLICIES)
    wait_until(
        lambda: (
            {MARK, "modelcache.io/injected-affinity"}
            <= door.pass_through(make_pod())["annotations"].keys()
        ),
        seconds=30,
        what="both policies in force",
    )
    try:
        yield expected
    finally:
        remove_policies(served, door)


def are_in_force(door):
    found = door.pass_through(make_pod())["annotations"]
    return {MARK, "modelcache.io/injected-affinity"} <= found.keys()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_the_policy_gives_what_the_definition_gives(guarded, door, row):
    assert door.pass_through(copy_of(row)) == guarded[row.id]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_what_has_been_through_it_passes_unchanged(guarded, door, row):
    injected = add_all(copy_of(row), make_injection(row.pod, cache_of(row), SETTINGS).operations)
    assert door.pass_through(injected) == guarded[row.id]


def test_a_policy_that_does_not_compile_would_be_refused(served):
    broken = copy.deepcopy(POLICIES[0])
    broken["metadata"]["name"] = "modelcache-broken"
    broken["spec"]["mutations"][0]["jsonPatch"]["expression"] = "object.spec.nowhere("
    with pytest.raises(Exception, match="compilation failed"):
        served.apply([broken])


def test_pods_of_other_namespaces_know_nothing_of_our_model_caches(guarded, served):
    name = f"other-{secrets.token_hex(4)}"
    served.create_namespace(name)
    try:
        there = Door(served, name)
        annotations = there.pass_through(make_pod())["annotations"]
        assert annotations == {MARK: "true"}
        put_cache(served, name, "m", CACHES["fetching"])
        put_cache(served, name, "m2", CACHES["m"])
        wait_until(
            lambda: (
                there.pass_through(make_pod(labels={LABEL: "m2"}))["annotations"].get(
                    "modelcache.io/injected-affinity"
                )
                == KEY
            ),
            seconds=20,
            what="the new ModelCache being seen",
        )
        spec = there.pass_through(make_pod())["spec"]
        assert "affinity" not in spec
    finally:
        served.delete_namespace(name)


def test_C48_the_systems_own_namespace_is_left_alone(guarded, served):
    if served.api.find(f"/api/v1/namespaces/{SYSTEM}") is None:
        served.create_namespace(SYSTEM)
    stored = Door(served, SYSTEM).pass_through(make_pod())
    assert stored["annotations"] == {}


def test_a_restricted_namespace_takes_the_injected_pod(guarded, served):
    name = f"strict-{secrets.token_hex(4)}"
    served.create_namespace(name, {"pod-security.kubernetes.io/enforce": "restricted"})
    secure = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod = make_pod()
    pod["spec"]["containers"][0]["securityContext"] = secure
    try:
        stored = Door(served, name).pass_through(pod)
        assert stored["spec"]["initContainers"][0]["name"] == "modelcache-wait"
    finally:
        served.delete_namespace(name)
