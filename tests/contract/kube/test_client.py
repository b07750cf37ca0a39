"""Every verb against a real API server."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from modelcache_kube import (
    CONFIG_MAPS,
    EVENTS,
    NODES,
    AlreadyExists,
    ApiUnavailable,
    Conflict,
    ConnectConfig,
    Event,
    EventType,
    Forbidden,
    Invalid,
    NotFound,
    Resource,
    connect,
)

pytestmark = pytest.mark.cluster
UNSERVED = Resource("modelcache.io", "v9", "nothings", "Nothing")


@pytest.fixture
def config_map(room, name):
    def build(**data):
        return {"metadata": {"name": name, "namespace": room}, "data": data}

    return build


async def test_get_gives_the_object_or_none(kube, room, name, config_map, requests):
    assert await kube.get(CONFIG_MAPS, name, room) is None
    await kube.create(CONFIG_MAPS, config_map(a="1"))
    assert (await kube.get(CONFIG_MAPS, name, room))["data"] == {"a": "1"}
    assert requests == [
        ("get", "configmaps", 404),
        ("create", "configmaps", 201),
        ("get", "configmaps", 200),
    ]


async def test_a_resource_that_is_not_served_says_nothing_of_its_objects(kube):
    with pytest.raises(NotFound):
        await kube.get(UNSERVED, "x", "default")
    with pytest.raises(NotFound):
        await kube.delete(UNSERVED, "x", "default")


async def test_the_api_server_decides_between_two_creators(kube, config_map):
    outcomes = await asyncio.gather(
        *(kube.create(CONFIG_MAPS, config_map(who=str(i))) for i in range(5)),
        return_exceptions=True,
    )
    assert sorted(type(o).__name__ for o in outcomes) == ["AlreadyExists"] * 4 + ["dict"]
    with pytest.raises(AlreadyExists, match="already exists"):
        await kube.create(CONFIG_MAPS, config_map())


async def test_apply_creates_changes_and_takes_back_only_its_own_fields(kube, config_map):
    await kube.apply(CONFIG_MAPS, config_map(a="1", b="1"), field_manager="one")
    await kube.apply(CONFIG_MAPS, config_map(c="1"), field_manager="two")
    after = await kube.apply(CONFIG_MAPS, config_map(a="2"), field_manager="one")
    assert after["data"] == {"a": "2", "c": "1"}


async def test_apply_without_force_conflicts_over_a_field_of_another(kube, config_map):
    await kube.apply(CONFIG_MAPS, config_map(a="1"), field_manager="one")
    with pytest.raises(Conflict, match='conflict with "one"') as refused:
        await kube.apply(CONFIG_MAPS, config_map(a="2"), field_manager="two", force=False)
    assert refused.value.code == 409
    forced = await kube.apply(CONFIG_MAPS, config_map(a="2"), field_manager="two")
    assert forced["data"] == {"a": "2"}


async def test_apply_to_an_object_of_another_uid_conflicts(kube, config_map):
    await kube.create(CONFIG_MAPS, config_map(a="1"))
    other = config_map(a="2")
    other["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(Conflict):
        await kube.apply(CONFIG_MAPS, other, field_manager="one")


async def test_merge_patch_guards_with_a_resource_version(kube, room, name, config_map):
    made = await kube.create(CONFIG_MAPS, config_map(a="1", b="1"))
    patch = {
        "metadata": {"resourceVersion": made["metadata"]["resourceVersion"]},
        "data": {"a": None, "c": "1"},
    }
    after = await kube.merge_patch(CONFIG_MAPS, name, patch, namespace=room)
    assert after["data"] == {"b": "1", "c": "1"}
    with pytest.raises(Conflict):
        await kube.merge_patch(CONFIG_MAPS, name, patch, namespace=room)


async def test_patch_of_nothing_is_not_found(kube, room, name):
    with pytest.raises(NotFound) as refused:
        await kube.merge_patch(CONFIG_MAPS, name, {"data": {}}, namespace=room)
    assert refused.value.names_an_object


async def test_delete_spares_an_object_of_another_uid(kube, room, name, config_map):
    made = await kube.create(CONFIG_MAPS, config_map())
    with pytest.raises(Conflict):
        await kube.delete(CONFIG_MAPS, name, room, uid="00000000-0000-0000-0000-000000000000")
    assert await kube.delete(CONFIG_MAPS, name, room, uid=made["metadata"]["uid"]) is True
    assert await kube.delete(CONFIG_MAPS, name, room) is False


async def test_list_goes_on_until_the_last_chunk(kube, room, name, requests):
    labels = {"list": name}
    for index in range(5):
        metadata = {"name": f"{name}-{index}", "namespace": room, "labels": labels}
        await kube.create(CONFIG_MAPS, {"metadata": metadata})
    requests.clear()
    selector = f"list={name}"
    found = await kube.list(CONFIG_MAPS, room, label_selector=selector, chunk_size=2)
    assert [item["metadata"]["name"] for item in found.items] == [f"{name}-{i}" for i in range(5)]
    assert found.resource_version
    assert requests == [("list", "configmaps", 200)] * 3
    one = await kube.list(CONFIG_MAPS, field_selector=f"metadata.name={name}-1")
    assert len(one.items) == 1
    assert (await kube.list(CONFIG_MAPS, room, label_selector="list=none")).items == ()


async def test_what_the_api_server_refuses_is_invalid(kube, room):
    bad = {"metadata": {"name": "Bad_Name", "namespace": room}}
    with pytest.raises(Invalid, match="RFC 1123"):
        await kube.create(CONFIG_MAPS, bad)
    with pytest.raises(Invalid):
        await kube.list(CONFIG_MAPS, room, label_selector="!!")


@pytest.mark.parametrize("odd", ["a?b=c", "a#b", "ü", "a b", "a\nb", "A_"])
async def test_an_odd_name_stays_a_name(kube, room, odd):
    assert await kube.get(CONFIG_MAPS, odd, room) is None


@pytest.mark.parametrize("hostile", ["", ".", "..", "a/../../nodes", "x/status", "%2e%2e"])
async def test_a_hostile_name_never_leaves_its_place(kube, room, hostile, requests):
    with pytest.raises(Invalid, match="cannot be the name"):
        await kube.get(CONFIG_MAPS, hostile, room)
    with pytest.raises(Invalid, match="cannot be the name"):
        await kube.get(CONFIG_MAPS, "name", hostile)
    assert requests == []


def test_paths():
    assert NODES.path("n1", subresource="status") == "/api/v1/nodes/n1/status"
    assert EVENTS.path(namespace="a") == "/apis/events.k8s.io/v1/namespaces/a/events"
    assert CONFIG_MAPS.path() == "/api/v1/configmaps"
    with pytest.raises(ValueError, match="needs a namespace"):
        CONFIG_MAPS.path("x")
    with pytest.raises(ValueError, match="not namespaced"):
        NODES.path("x", "default")


async def test_without_rights_it_is_forbidden(installed, tmp_path):
    credentials = installed.service_account_kubeconfig(
        "modelcache-system", "modelcache-agent", tmp_path
    )
    async with connect(ConnectConfig(kubeconfig=credentials.kubeconfig)) as agent:
        with pytest.raises(Forbidden, match="cannot list resource"):
            await agent.list(CONFIG_MAPS)


async def test_no_answer_is_unavailable(relayed, requests):
    relay, kubeconfig = relayed
    config = ConnectConfig(kubeconfig=kubeconfig, timeout_seconds=0.3)
    async with connect(config, on_request=lambda *told: requests.append(told)) as kube:
        assert await kube.list(NODES)
        relay.freeze()
        with pytest.raises(ApiUnavailable, match="did not answer"):
            await kube.list(NODES)
        relay.thaw()
        relay.refuse()
        with pytest.raises(ApiUnavailable, match="did not answer"):
            await kube.list(NODES)
        relay.refuse(refusing=False)
        assert await kube.list(NODES)
    assert [code for _, _, code in requests] == [200, 0, 0, 200]


@pytest.fixture
def event(room):
    regarding = {
        "apiVersion": "modelcache.io/v1alpha1",
        "kind": "ModelCache",
        "name": "minilm",
        "namespace": room,
        "uid": "u1",
    }
    return Event(
        regarding=regarding,
        type=EventType.WARNING,
        reason="NodeLost",
        note="ü" * 2000,
        action="Place",
        controller="modelcache.io/operator",
        instance="operator-0",
    )


async def test_event_is_told_once_and_then_counted(kube, room, event):
    await kube.post_event(event)
    await kube.post_event(event)  # another replica, or after a restart
    await kube.post_event(dataclasses.replace(event, count=7))
    told = await kube.get(EVENTS, event.name, room)
    assert told["reason"] == "NodeLost"
    assert told["series"]["count"] == 7
    assert len(told["note"].encode()) <= 1024
    assert told["regarding"] == dict(event.regarding)


async def test_event_that_expired_is_told_anew(kube, room, event):
    again = dataclasses.replace(event, reason="AgentAlive", count=3)
    await kube.post_event(again)
    assert (await kube.get(EVENTS, again.name, room))["reason"] == "AgentAlive"


async def test_event_of_a_cluster_scoped_object_goes_to_default(kube, event):
    regarding = {"apiVersion": "v1", "kind": "Node", "name": "n" * 253, "uid": "u2"}
    of_node = dataclasses.replace(event, regarding=regarding)
    await kube.post_event(of_node)
    assert await kube.get(EVENTS, of_node.name, "default")
