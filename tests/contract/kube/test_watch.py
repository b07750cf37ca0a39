"""A watch against a real API server that goes away and comes back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from modelcache_kube import CONFIG_MAPS, Change, ConnectConfig, Expired, KubeError, connect
from modelcache_kube.watching import Watcher

pytestmark = pytest.mark.cluster
PATIENCE = 30.0


class Watched:
    """What one watch has told so far."""

    def __init__(self):
        self.told = []
        self.errors: list[KubeError] = []
        self.failed = asyncio.Event()
        self._changed = asyncio.Condition()

    def note(self, error):
        self.errors.append(error)
        self.failed.set()

    async def follow(self, events):
        async for change, obj in events:
            async with self._changed:
                name = obj.get("metadata", {}).get("name")
                self.told.append((change, name, obj.get("data")))
                self._changed.notify_all()

    async def until(self, change, name=None):
        """Wait for this, and take it and all before it off the list."""

        def position():
            matching = (i for i, told in enumerate(self.told) if told[:2] == (change, name))
            return next(matching, None)

        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: position() is not None)
            end = position() + 1
            taken, self.told = self.told[:end], self.told[end:]
            return taken


@pytest.fixture
def watching(room, name):
    """Watch the ConfigMaps of one label."""

    @asynccontextmanager
    async def start(kube, **options):
        watched = Watched()
        events = kube.watch(
            CONFIG_MAPS,
            room,
            label_selector=f"watch={name}",
            on_error=watched.note,
            **options,
        )
        task = asyncio.create_task(watched.follow(events), name="watch")
        yield watched
        task.cancel()
        await asyncio.wait({task})
        await events.aclose()

    return start


@pytest.fixture
def put(kube, room, name):
    async def apply(suffix, **data):
        metadata = {"name": f"{name}-{suffix}", "namespace": room, "labels": {"watch": name}}
        await kube.apply(CONFIG_MAPS, {"metadata": metadata, "data": data}, field_manager="t")
        return metadata["name"]

    return apply


async def test_what_is_there_then_synced_then_changes(kube, room, put, watching):
    a = await put("a", x="1")
    async with watching(kube) as watched:
        assert await watched.until(Change.SYNCED) == [
            (Change.ADDED, a, {"x": "1"}),
            (Change.SYNCED, None, None),
        ]
        await put("a", x="2")
        assert await watched.until(Change.MODIFIED, a) == [(Change.MODIFIED, a, {"x": "2"})]
        b = await put("b")
        await watched.until(Change.ADDED, b)
        await kube.delete(CONFIG_MAPS, b, room)
        await watched.until(Change.DELETED, b)
        assert watched.errors == []


async def test_nothing_there_is_told_as_synced(kube, watching):
    async with watching(kube) as watched:
        assert await watched.until(Change.SYNCED) == [(Change.SYNCED, None, None)]


async def test_objects_deleted_while_the_connection_was_down_are_told(
    kube, room, relayed, put, watching
):
    relay, kubeconfig = relayed
    names = [await put(s, x="1") for s in ("changed", "deleted", "same")]
    async with connect(ConnectConfig(kubeconfig=kubeconfig)) as far, watching(far) as watched:
        await watched.until(Change.SYNCED)
        relay.refuse()
        await put("changed", x="2")
        await kube.delete(CONFIG_MAPS, names[1], room)
        new = await put("new")
        async with asyncio.timeout(PATIENCE):
            await watched.failed.wait()
        relay.refuse(refusing=False)
        told = await watched.until(Change.SYNCED)
    assert sorted(told) == [
        (Change.ADDED, new, None),
        (Change.DELETED, names[1], None),
        (Change.MODIFIED, names[0], {"x": "2"}),
        (Change.SYNCED, None, None),
    ]


@pytest.mark.slow
async def test_watch_survives_a_restart_of_the_api_server(local_cluster, kube, put, watching):
    a = await put("a", x="1")
    async with watching(kube) as watched:
        await watched.until(Change.SYNCED)
        await asyncio.to_thread(local_cluster.restart, "kube-apiserver")
        await put("a", x="2")
        told = await watched.until(Change.MODIFIED, a)
    assert told[-1] == (Change.MODIFIED, a, {"x": "2"})
    assert all(change is not Change.DELETED for change, _, _ in told)


@pytest.mark.slow
async def test_version_that_is_too_old_leads_to_a_new_list(local_cluster, kube, room, put, name):
    a = await put("a", x="1")
    # A server that has just started remembers no changes from before.
    await asyncio.to_thread(local_cluster.restart, "kube-apiserver")
    errors = []
    query = {"labelSelector": f"watch={name}"}
    watcher = Watcher(kube._transport, CONFIG_MAPS, room, query, on_error=errors.append)
    watcher._version = "1"
    async with asyncio.timeout(PATIENCE):
        events = watcher.events()
        told = [await anext(events), await anext(events)]
        await events.aclose()
    assert [(c, o.get("metadata", {}).get("name")) for c, o in told] == [
        (Change.ADDED, a),
        (Change.SYNCED, None),
    ]
    assert [type(e) for e in errors] == [Expired]
