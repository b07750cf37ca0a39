"""Which watches are open: seen at kopf's and at our own client, on an API server that is played."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress

import pytest
import yaml

from fakes.seen_watches import OF_KOPF, SeenWatches
from fakes.watched_api import Fault, WatchedApi
from modelcache_kube import ConnectConfig, connect
from modelcache_operator.adapters.pod_watch import watch_pods
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.health import Health
from modelcache_operator.kopf_app import KopfInformer
from modelcache_operator.ports.login import ApiLogin

LIMIT = 600
FAULTS = [pytest.param(fault, id=fault.name) for fault in Fault]


@pytest.fixture
async def api():
    async with WatchedApi() as api:
        yield api


@asynccontextmanager
async def kopf_watching(login):
    seen = SeenWatches()
    informer = KopfInformer(
        login, WatchCache(), seen, on_relist=lambda: None, on_event=lambda _kind: None
    )
    informer.start()
    try:
        yield seen
    finally:
        await informer.stop()


@asynccontextmanager
async def pods_watching(api, folder):
    seen = SeenWatches({"pods"})
    with_api = {"name": "x", "cluster": {"server": api.url}}
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    users = [{"name": "x", "user": {}}]
    config = {"clusters": [with_api], "contexts": [context], "users": users}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config | {"current-context": "x"}))
    health = Health(
        Heard(),
        seen,
        limit_seconds=LIMIT,
        is_watching=lambda: True,
        is_waiting_for_crds=lambda: False,
    )
    async with connect(ConnectConfig(kubeconfig=path), on_request=health.note_request) as kube:
        task = asyncio.create_task(watch_pods(kube, WatchCache(), seen))
        yield seen
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Heard:
    """An API server that answers our lists."""

    silent_seconds = 0.0

    def note(self, code):
        """Nothing to remember."""


def logs_in(api):
    async def login():
        return ApiLogin(server=api.url)

    return login


async def until(question, seconds=20):
    async with asyncio.timeout(seconds):
        while not question():  # noqa: ASYNC110 - any question
            await asyncio.sleep(0.02)


async def test_watches_of_kopf_that_are_open_and_silent_are_good(api):
    async with kopf_watching(logs_in(api)) as seen:
        await until(lambda: seen.open == OF_KOPF)
        seen.now = LIMIT + 90
        assert seen.complain(LIMIT) is None
    await until(lambda: seen.open == set())


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_watch_of_kopf_that_fails_again_and_again_is_missed_until_it_is_open(api, fault):
    api.faults["modelcaches"] = fault
    async with kopf_watching(logs_in(api)) as seen:
        others = OF_KOPF - {"modelcaches"}
        await until(lambda: seen.open >= others and api.watches["modelcaches"] > 1)
        await until(lambda: "modelcaches" not in seen.open)
        seen.now = LIMIT + 50
        assert seen.complain(LIMIT) is None
        await until(lambda: "modelcaches" not in seen.open)
        seen.now = LIMIT + 70
        complaint = seen.complain(LIMIT)
        assert "no watch of modelcaches has been open for 6" in complaint
        assert "the verb watch" in complaint
        api.faults.clear()
        await until(lambda: seen.open == OF_KOPF)
        seen.now += 10
        assert seen.complain(LIMIT) is None


@pytest.mark.slow
async def test_refused_credentials_are_not_offered_again_without_a_pause(api):
    logins = []

    async def login():
        logins.append(time.monotonic())
        return ApiLogin(server=api.url, token="old")

    api.refuses_tokens = True
    async with kopf_watching(login):
        await until(lambda: len(logins) >= 3)
    # The first run of kopf logs in, and once more; then it ends, and rests before the next.
    assert logins[2] - logins[0] >= 0.9


async def test_credentials_that_were_replaced_are_used_at_once(api):
    logins = []

    async def login():
        logins.append(time.monotonic())
        if len(logins) > 1:
            api.refuses_tokens = False
        return ApiLogin(server=api.url, token=f"token-{len(logins)}")

    api.refuses_tokens = True
    async with kopf_watching(login) as seen:
        await until(lambda: seen.open == OF_KOPF)
    assert len(logins) == 2


async def test_a_watch_of_pods_that_is_open_and_silent_is_good(api, tmp_path):
    async with pods_watching(api, tmp_path) as seen:
        await until(lambda: seen.open == {"pods"})
        seen.now = LIMIT + 90
        assert seen.complain(LIMIT) is None


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_watch_of_pods_that_fails_again_and_again_is_missed(api, tmp_path, fault):
    api.faults["pods"] = fault
    async with pods_watching(api, tmp_path) as seen:
        await until(lambda: api.watches["pods"] > 1)
        await until(lambda: "pods" not in seen.open)
        seen.now = LIMIT + 70
        assert "no watch of pods has been open for" in seen.complain(LIMIT)
        api.faults.clear()
        await until(lambda: seen.open == {"pods"})
        seen.now += 10
        assert seen.complain(LIMIT) is None
