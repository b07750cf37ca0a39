"""kopf against a real API server: what it tells, what it leaves alone, how it comes back."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial

import pytest

from fakes.seen_watches import OF_KOPF, SeenWatches
from modelcache_kube import MODEL_CACHES, NODES, ConnectConfig, connect
from modelcache_operator.adapters.login import read_login
from modelcache_operator.adapters.relist import Relister
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.decide.world import NodeName, ObjectKey
from modelcache_operator.kopf_app import KopfInformer
from modelcache_testbed.models import build_cache, build_namespace
from modelcache_testbed.system import System

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def installed(cluster, tmp_path_factory):
    system = System(cluster, tmp_path_factory.mktemp("wiring"))
    system.install()
    yield cluster
    system.remove()


@asynccontextmanager
async def watching(cluster):
    cache, events, asked, watches = WatchCache(), Counter(), [], SeenWatches()
    async with connect(ConnectConfig(kubeconfig=cluster.kubeconfig)) as kube:
        await Relister(kube, cache, on_resources_back=lambda: None).list_all()
        informer = KopfInformer(
            partial(read_login, cluster.kubeconfig),
            cache,
            watches,
            on_relist=lambda: asked.append(True),
            on_event=lambda kind: events.update([kind]),
        )
        informer.start()
        try:
            await until(lambda: watches.open == OF_KOPF)
            yield kube, cache, informer, events
        finally:
            await informer.stop()


async def until(question, seconds=20):
    async with asyncio.timeout(seconds):
        while not question():  # noqa: ASYNC110 - any question
            await asyncio.sleep(0.05)


async def apply_cache(kube, namespace, name, copies=1):
    await kube.apply(
        MODEL_CACHES, build_cache(namespace, name, "m1", copies=copies), field_manager="a-user"
    )


@pytest.fixture
def name(installed):
    name = f"wiring-{secrets.token_hex(3)}"
    installed.apply([build_namespace(name)])
    yield name
    installed.delete_namespace(name)


async def test_objects_come_change_and_go_and_are_left_as_they_are(installed, name):
    key = ObjectKey(name, "c1")
    async with watching(installed) as (kube, cache, _, _):
        await apply_cache(kube, name, "c1")
        await until(lambda: cache.model_cache(key) is not None)
        await apply_cache(kube, name, "c1", copies=3)
        await until(lambda: cache.model_cache(key).spec.placement.copies == 3)
        await asyncio.sleep(1)
        seen = await kube.get(MODEL_CACHES, "c1", name)
        assert "annotations" not in seen["metadata"]
        assert "finalizers" not in seen["metadata"]
        assert {entry["manager"] for entry in seen["metadata"]["managedFields"]} == {"a-user"}
        await kube.delete(MODEL_CACHES, "c1", name)
        await until(lambda: cache.model_cache(key) is None)


async def test_C51_an_object_with_huge_annotations_is_watched_like_any_other(installed, name):
    async with watching(installed) as (kube, cache, _, _):
        body = build_cache(name, "big", "m1", copies=1)
        body["metadata"]["annotations"] = {"example.com/applied": "x" * 250_000}
        await kube.create(MODEL_CACHES, body)
        await until(lambda: cache.model_cache(ObjectKey(name, "big")) is not None)
        await apply_cache(kube, name, "small")
        await until(lambda: cache.model_cache(ObjectKey(name, "small")) is not None)


async def test_nodes_are_watched_and_their_heartbeats_are_not_told(installed, name):
    async with watching(installed) as (kube, cache, _, events):
        installed.add_node(name, wait=False)
        node = NodeName(name)
        try:
            await until(lambda: cache.node(node) is not None)
            told = []
            await asyncio.sleep(2)
            cache.subscribe(told.append)
            before = events["nodes"]
            for number in range(5):
                patch = {"status": {"nodeInfo": {"bootID": f"{number}"}}}
                await kube.merge_patch(NODES, name, patch, subresource="status")
            await until(lambda: events["nodes"] >= before + 5)
            assert [change for change in told if change.view.name == name] == []
        finally:
            installed.remove_node(name)
        await until(lambda: cache.node(node) is None)


async def test_a_restart_of_the_watches_loses_nothing(installed, name):
    async with watching(installed) as (kube, cache, informer, _):
        await apply_cache(kube, name, "before")
        await until(lambda: cache.model_cache(ObjectKey(name, "before")) is not None)
        informer.restart()
        await apply_cache(kube, name, "during")
        await until(lambda: cache.model_cache(ObjectKey(name, "during")) is not None)
        assert informer.is_alive
    assert not informer.is_alive
