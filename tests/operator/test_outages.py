"""Operators that die, API servers that go away, watches that lose events."""

from __future__ import annotations

import asyncio
import signal
import time

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
    before = await stage.cache_node(next(iter(await stage.holders())))
    await in_thread(operator.kill)
    start = stage.cluster.audit.position()
    await in_thread(operator.start)
    await stage.until(lambda: stage.probe("/readyz"), (200, "ok\n"))
    leading = "modelcache_operator_is_leader 1.0"
    await stage.until(lambda: stage.probe("/metrics"), lambda found: leading in found[1])
    await asyncio.sleep(5)
    writes = [
        (event.verb, event.resource)
        for event in stage.cluster.audit.events(start)
        if event.user == OPERATOR_USER
        and event.verb not in {"get", "list", "watch"}
        and event.resource not in {"leases", "tokenreviews"}
    ]
    assert writes == []
    after = await stage.cache_node(before["metadata"]["name"])
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


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
        # An earlier outage may keep the controller manager from taking the taints of arrival off.
        await stage.until_cached(name, copies="2/2", seconds=90)
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


async def test_C52_a_second_operator_takes_over_within_the_lease_and_both_never_lead(stage):
    first = stage.system.operators["operator-0"]
    second = await in_thread(
        lambda: stage.system.add_operator(
            "operator-1",
            extra=("--lease-list-interval=1s", "--agent-lost-after=12s"),
            primary=False,
        )
    )
    try:
        await stage.until(
            lambda: in_thread(second.log_file.read_text), lambda text: "watching" in text
        )
        await stage.apply_version()
        await stage.until(stage.version_ready, ("True", "Resolved"))
        for number in range(25):
            await stage.apply_cache(f"c{number}", copies=2)
        leader = await _leader(stage)
        active, other = (first, second) if leader == "operator-0" else (second, first)
        await in_thread(active.kill)
        killed = time.monotonic()
        for number in range(25, 50):
            await stage.apply_cache(f"c{number}", copies=2)
        await stage.until(lambda: _leader(stage), other.name, seconds=25)
        assert time.monotonic() - killed < 20
        for number in range(50):
            await stage.until_cached(f"c{number}", copies="2/2", seconds=60)
        assert "leading" in await in_thread(other.log_file.read_text)
        await in_thread(active.start)
    finally:
        await in_thread(first.start)
        await in_thread(second.stop)
        del stage.system.operators["operator-1"]
    await stage.until(lambda: _leader(stage), "operator-0", seconds=25)


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
