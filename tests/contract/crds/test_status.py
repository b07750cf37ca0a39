"""Spec and status are written apart, and each field of a status has one writer."""

from __future__ import annotations

import pytest

from contract.crds.objects import CONDITION, FULL, MINIMAL, RESOURCES
from modelcache_api.names import MANAGER_AGENT, MANAGER_OPERATOR_STATUS
from modelcache_kube import CACHE_NODES, Conflict

pytestmark = pytest.mark.cluster
KINDS = list(RESOURCES)


@pytest.mark.parametrize("kind", KINDS)
async def test_status_is_ignored_on_creation_and_by_patches_of_the_object(hand, kind):
    made = await hand.create(kind, FULL[kind])
    assert "status" not in made
    patched = await hand.patch(kind, made["metadata"]["name"], {"status": FULL[kind]["status"]})
    assert "status" not in patched
    assert patched["metadata"]["generation"] == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_spec_is_ignored_by_patches_of_the_status(hand, kind):
    made = await hand.create(kind, MINIMAL[kind])
    body = {"spec": FULL[kind]["spec"], "status": FULL[kind]["status"]}
    patched = await hand.patch(kind, made["metadata"]["name"], body, "status")
    assert patched["spec"] == made["spec"]
    assert patched["status"] == FULL[kind]["status"]
    assert patched["metadata"]["generation"] == 1


def node(name, status):
    return {"metadata": {"name": name}, "status": status}


@pytest.fixture
async def node_name(hand):
    made = await hand.create("CacheNode", MINIMAL["CacheNode"])
    return made["metadata"]["name"]


@pytest.fixture
def apply_status(kube, node_name):
    """Server-side apply of a part of the CacheNode's status, as one of its two writers."""

    async def apply(manager, status, *, force=True):
        body = node(node_name, status)
        return await kube.apply(
            CACHE_NODES, body, field_manager=manager, force=force, subresource="status"
        )

    return apply


AGENT_STATUS = {
    key: value for key, value in FULL["CacheNode"]["status"].items() if key != "conditions"
}
READY = {"conditions": [CONDITION]}
LOST = {"conditions": [{**CONDITION, "status": "False", "reason": "NodeLost"}]}


async def test_operator_and_agent_write_one_status_without_touching_each_other(apply_status):
    await apply_status(MANAGER_OPERATOR_STATUS, READY, force=False)
    await apply_status(MANAGER_AGENT, AGENT_STATUS, force=False)
    lost = await apply_status(MANAGER_OPERATOR_STATUS, LOST, force=False)
    assert lost["status"] == AGENT_STATUS | LOST
    shorter = AGENT_STATUS | {"entries": [], "models": 0}
    after = await apply_status(MANAGER_AGENT, shorter, force=False)
    assert after["status"]["conditions"] == LOST["conditions"]
    assert after["status"]["entries"] == []


async def test_conditions_of_both_writers_live_side_by_side(apply_status):
    await apply_status(MANAGER_OPERATOR_STATUS, READY, force=False)
    own = {"conditions": [{**CONDITION, "type": "Stalled", "status": "False"}]}
    both = await apply_status(MANAGER_AGENT, AGENT_STATUS | own, force=False)
    assert [c["type"] for c in both["status"]["conditions"]] == ["Ready", "Stalled"]
    without = await apply_status(MANAGER_AGENT, AGENT_STATUS, force=False)
    assert [c["type"] for c in without["status"]["conditions"]] == ["Ready"]


async def test_a_second_writer_of_a_field_is_a_conflict(apply_status):
    await apply_status(MANAGER_OPERATOR_STATUS, READY, force=False)
    with pytest.raises(Conflict, match=MANAGER_OPERATOR_STATUS):
        await apply_status(MANAGER_AGENT, LOST, force=False)


async def test_agent_drops_one_entry_and_keeps_the_others(apply_status):
    entry = AGENT_STATUS["entries"][0]
    two = AGENT_STATUS | {"entries": [entry, {**entry, "uid": "v2"}]}
    await apply_status(MANAGER_AGENT, two)
    after = await apply_status(MANAGER_AGENT, AGENT_STATUS)
    assert [e["uid"] for e in after["status"]["entries"]] == ["v1"]


async def test_same_status_again_is_no_write(apply_status):
    first = await apply_status(MANAGER_AGENT, AGENT_STATUS)
    second = await apply_status(MANAGER_AGENT, AGENT_STATUS)
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
