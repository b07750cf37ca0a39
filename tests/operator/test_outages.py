"""Operators that die, API servers that go away, watches that lose events."""

from __future__ import annotations

import asyncio
import signal
import time
import urllib.request

import pytest

from fakes.stage import OPERATOR_USER
from modelcache_kube import CACHE_NODES, LEASES, MODEL_CACHES, ApiUnavailable

pytestmark = pytest.mark.cluster


async def in_thread(act, *arguments):
    return await asyncio.to_thread(act, *arguments)


async def test_C37_what_happens_while_the_operator_is_down_is_found(stage):
    operator = stage.system.operators["operator-0"]
    await stage.apply_version()
    for name in ("deleted", "edited", "kept"):
        await stage.apply_cache(name, copies=2)
        await stage.until_cached(name, copies="2/2")
    kept = await stage.holders("kept")
    await in_thread(operator.stop)
    await stage.delete_cache("deleted")
    await stage.apply_cache("edited", copies=3)
    await stage.kube.merge_patch(
        MODEL_CACHES,
        "kept",
        {"status": {"copiesSummary": "9/9"}},
        namespace=stage.namespace,
        subresource="status",
    )
    await in_thread(operator.start)
    await stage.until(lambda: stage.holders("deleted"), set())
    await stage.until_cached("edited", copies="3/3")
    await stage.until_cached("kept", copies="2/2")
    assert await stage.holders("kept") == kept


async def test_a_restart_of_the_operator_writes_nothing(stage):
    operator = stage.system.operators["operator-0"]
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    # What the operator that is killed had sent is answered after its death.
    await stage.until(lambda: _writes_in_a_while(stage), [])
    before = await stage.cache_node(next(iter(await stage.holders())))
    await in_thread(operator.kill)
    start = stage.cluster.audit.position()
    await in_thread(operator.start)
    await stage.until(lambda: stage.probe("/readyz"), (200, "ok\n"))
    leading = "modelcache_operator_is_leader 1.0"
    await stage.until(lambda: stage.probe("/metrics"), lambda found: leading in found[1])
    assert await _writes_in_a_while(stage, start) == []
    after = await stage.cache_node(before["metadata"]["name"])
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def _writes_in_a_while(stage, start=None):
    """What the operator wrote from a position of the audit log, or from now, to in 3 s."""
    start = stage.cluster.audit.position() if start is None else start
    await asyncio.sleep(3)
    return [
        (event.verb, event.resource, event.namespace, event.name, event.status)
        for event in stage.cluster.audit.events(start)
        if event.user == OPERATOR_USER
        and event.verb not in {"get", "list", "watch"}
        and event.resource not in {"leases", "tokenreviews"}
    ]


async def test_an_api_server_that_is_away_is_survived_and_nobody_is_called_lost(
    stage, local_cluster
):
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    operator = stage.system.operators["operator-0"]
    process = operator.identity
    await in_thread(local_cluster.stop, "kube-apiserver")
    try:
        for _ in range(4):
            await asyncio.sleep(5)
            assert await stage.probe("/healthz") == (200, "ok\n")
    finally:
        await in_thread(local_cluster.start, "kube-apiserver")
    await stage.until(_answers(stage), True)
    await stage.apply_cache("later", copies=1)
    await stage.until_cached("later", copies="1/1", seconds=60)
    assert operator.identity == process
    for name in stage.nodes:
        assert await stage.node_ready(name) == ("True", "AgentAlive")


def _answers(stage):
    async def ask() -> bool:
        try:
            await stage.cache()
        except ApiUnavailable:
            return False
        return True

    return ask


async def test_deletions_that_no_watch_tells_of_are_noticed(stage, local_cluster):
    await stage.apply_version()
    for name in ("c1", "c2"):
        await stage.apply_cache(name, copies=2)
        await stage.until_cached(name, copies="2/2")
    process = stage.system.operators["operator-0"].identity
    process.signal(signal.SIGSTOP)
    try:
        # Its watches break, and the new server does not remember what happened meanwhile.
        await in_thread(local_cluster.restart, "kube-apiserver")
        await stage.until(_answers(stage), True)
        await stage.delete_cache("c1")
        await asyncio.sleep(1)
        await in_thread(local_cluster.restart, "kube-apiserver")
        await stage.until(_answers(stage), True)
    finally:
        process.signal(signal.SIGCONT)
    await stage.until(lambda: stage.holders("c1"), set(), seconds=60)
    await stage.until_cached("c2", copies="2/2", seconds=60)


async def test_C52_a_second_operator_takes_over_in_time_and_nothing_is_begun_twice(stage):
    first = stage.system.operators["operator-0"]
    second = await in_thread(
        lambda: stage.system.add_operator(
            "operator-1",
            extra=("--lease-list-interval=1s", "--agent-lost-after=12s"),
            primary=False,
        )
    )
    moments_of_two = []
    watcher = asyncio.create_task(_watch_for_two_leaders(first, second, moments_of_two))
    try:
        await stage.until(
            lambda: in_thread(second.log_file.read_text), lambda text: "watching" in text
        )
        await _apply_changes(stage, range(25))
        leader = await _leader(stage)
        active, other = (first, second) if leader == "operator-0" else (second, first)
        # In the middle of its work.
        await stage.until(lambda: _downloads(stage), lambda begun: len(begun) >= 10)
        await in_thread(active.kill)
        killed = time.monotonic()
        await _apply_changes(stage, range(25, 50))
        await stage.until(lambda: _leader(stage), other.name, seconds=25)
        assert time.monotonic() - killed < 20
        await in_thread(active.start)
        for number in range(50):
            await stage.until_cached(f"c{number}", copies="2/2", seconds=60)
    finally:
        await in_thread(first.start)
        await in_thread(second.stop)
        watcher.cancel()
        del stage.system.operators["operator-1"]
    await stage.until(lambda: _leader(stage), "operator-0", seconds=25)
    await stage.until(lambda: in_thread(_says_it_leads, first), True)
    assert moments_of_two == []
    begun = await _downloads(stage)
    assert len(begun) == len(set(begun)) == 50 * 2
    assert stage.fleet.errors == []


async def _apply_changes(stage, numbers):
    for number in numbers:
        await stage.apply_version(f"m{number}")
        await stage.apply_cache(f"c{number}", f"m{number}", copies=2)


async def _downloads(stage):
    return list(stage.fleet.downloads)


async def _watch_for_two_leaders(first, second, moments):
    """Ask both, again and again; the first one twice, so that an orderly change is none."""
    while True:
        if await in_thread(lambda: all(map(_says_it_leads, (first, second, first)))):
            moments.append(time.monotonic())
        await asyncio.sleep(0.02)


def _says_it_leads(operator) -> bool:
    (port,) = (a.partition("=")[2] for a in operator.argv if a.startswith("--http-port="))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
            return "modelcache_operator_is_leader 1.0" in answer.read().decode()
    except OSError:
        return False


async def _leader(stage) -> str:
    lease = await stage.kube.get(LEASES, "modelcache-operator-leader", "modelcache-system")
    return (lease or {}).get("spec", {}).get("holderIdentity") or ""


async def test_C52_a_lease_that_names_a_ghost_from_the_future_pauses_nobody_for_ever(stage):
    operator = stage.system.operators["operator-0"]
    await in_thread(operator.kill)
    ghost = {"holderIdentity": "ghost", "renewTime": "2099-01-01T00:00:00.000000Z"}
    await stage.kube.merge_patch(
        LEASES, "modelcache-operator-leader", {"spec": ghost}, namespace="modelcache-system"
    )
    await in_thread(operator.start)
    await stage.until(lambda: _leader(stage), "operator-0", seconds=30)
    await stage.apply_version()
    await stage.apply_cache(copies=1)
    await stage.until_cached(copies="1/1")


async def test_a_cache_node_that_somebody_edits_or_deletes_is_repaired(stage):
    await stage.apply_version()
    await stage.apply_cache(copies=3)
    await stage.until_cached(copies="3/3")
    edited, deleted, _ = stage.nodes
    await stage.kube.merge_patch(CACHE_NODES, edited, {"spec": {"entries": [], "caches": []}})
    await stage.kube.delete(CACHE_NODES, deleted)
    await stage.until(stage.holders, set(stage.nodes))
    await stage.until_cached(copies="3/3")


async def test_sigterm_ends_it_quickly_and_gives_the_lease_back(stage):
    operator = stage.system.operators["operator-0"]
    await stage.until(lambda: _leader(stage), "operator-0", seconds=30)
    started = time.monotonic()
    await in_thread(operator.stop)
    assert time.monotonic() - started < 10
    assert await _leader(stage) == ""
    assert "Traceback" not in await in_thread(operator.log_file.read_text)
    await in_thread(operator.start)
    await stage.until(lambda: _leader(stage), "operator-0", seconds=30)
