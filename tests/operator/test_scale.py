"""Many nodes, many models, much coming and going: counts, never seconds."""

from __future__ import annotations

import asyncio
import json
import secrets
import urllib.request

import pytest

from fakes.stage import OPERATOR_USER
from modelcache_kube import MODEL_CACHES, MODEL_VERSIONS

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FAILED = ("Failed", "StoreError", "no space left on device " * 20)


@pytest.mark.nodes(300)
async def test_C40_status_stays_small_with_300_nodes_40_models_and_long_errors(stage):
    for name in stage.nodes[:200]:
        stage.fleet.nodes[name].default_verdict = (FAILED[0], FAILED[1], FAILED[2][:512])
    await stage.apply_version()
    for number in range(1, 40):
        await stage.apply_version(f"m{number + 1}")
    for number in range(40):
        await stage.apply_cache(f"c{number}", f"m{number + 1}", copies="All")
    for number in range(40):
        await stage.until(lambda number=number: stage.copies(f"c{number}"), "100/300", seconds=300)
        await stage.until(
            lambda number=number: stage.ready(f"c{number}"), ("True", "Degraded"), seconds=60
        )
    cache = await stage.cache("c0")
    assert len(json.dumps(cache)) < 20_000
    status = cache["status"]
    assert status["copies"]["failed"] == 200
    assert (len(status["failures"]), status["failuresOmitted"]) == (8, 192)
    node = await stage.cache_node(stage.nodes[0])
    assert len(node["spec"]["entries"]) == 40
    assert len(json.dumps(node)) < 100_000


@pytest.mark.nodes(3)
async def test_C44_series_of_what_is_gone_vanish_and_labels_stay_bounded(stage):
    await stage.apply_version()
    await stage.apply_cache(copies=1)
    await stage.until_cached(copies="1/1")
    base = _series(await stage.metrics())
    for _ in range(20):
        names = [f"x{secrets.token_hex(4)}" for _ in range(5)]
        for name in names:
            await stage.apply_version(name)
            await stage.apply_cache(name, name, copies=1)
        await stage.until(lambda name=names[-1]: stage.copies(name), "1/1")
        for name in names:
            await stage.delete_cache(name)
            await stage.delete_version(name)
    await stage.until(
        stage.metrics, lambda text: _objects(_series(text)) == _objects(base), seconds=20
    )
    text = await stage.metrics()
    assert "sha256" not in text
    assert "http" not in "".join(line for line in text.splitlines() if "{" in line)
    assert len(_series(text)) < len(base) + 60


def _series(text: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def _objects(series: set[str]) -> set[str]:
    return {
        one for one in series if not one.startswith(("modelcache_operator", "python", "process"))
    }


@pytest.mark.nodes(100)
async def test_200_models_on_100_nodes_converge_and_then_nothing_is_written(stage):
    start = stage.cluster.audit.position()
    for number in range(200):
        await stage.apply_version(f"m{number}")
        await stage.apply_cache(f"c{number}", f"m{number}", copies=2)
    for number in range(200):
        await stage.until_cached(f"c{number}", copies="2/2", seconds=240)
    writes = _writes(stage, start)
    # A version: Resolving, Resolved, its content, its counts. A cache: waiting, placed, verified.
    assert sum(event.resource == "modelversions" for event in writes) <= 200 * 5
    assert sum(event.resource == "modelcaches" for event in writes) <= 200 * 6
    assert sum(event.resource == "cachenodes" for event in writes) <= 400 * 4
    await stage.until(lambda: _is_quiet(stage), True, seconds=120)
    quiet = stage.cluster.audit.position()
    await asyncio.sleep(20)
    assert _writes(stage, quiet) == []
    asked = [
        event
        for event in stage.cluster.audit.events(quiet)
        if event.user == OPERATOR_USER and event.resource != "leases"
    ]
    assert len(asked) < 20
    for resource in (MODEL_CACHES, MODEL_VERSIONS):
        for item in (await stage.kube.list(resource, stage.namespace)).items:
            await stage.kube.delete(resource, item["metadata"]["name"], stage.namespace)
    await stage.until(stage.labels, {}, seconds=120)


async def _is_quiet(stage):
    """Events are told at a rate of their own, after everything else."""
    start = stage.cluster.audit.position()
    await asyncio.sleep(5)
    return not any(
        event.user == OPERATOR_USER and event.resource == "events"
        for event in stage.cluster.audit.events(start)
    )


def _writes(stage, start):
    return [
        event
        for event in stage.cluster.audit.events(start)
        if event.user == OPERATOR_USER
        and event.verb not in {"get", "list", "watch"}
        and event.resource not in {"leases", "events", "tokenreviews", "configmaps"}
    ]


def test_the_health_endpoints_answer_and_tell_versions_apart(system):
    url = f"http://127.0.0.1:{system.operator_http_port}"
    for path in ("/healthz", "/readyz"):
        with urllib.request.urlopen(url + path, timeout=5) as answer:
            assert answer.read() == b"ok\n"
