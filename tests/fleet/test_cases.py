"""C40, C44, C52 and C61 among many nodes and ModelCaches: sizes and counts, never seconds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from urllib.parse import parse_qs, urlsplit

import pytest

from fakes.fault_proxy import FaultProxy
from fakes.fleet_stage import read_metrics
from fakes.played_fleet import _bounded
from modelcache_kube import CACHE_NODES, LEASES, MODEL_CACHES, MODEL_VERSIONS

pytestmark = [pytest.mark.cluster, pytest.mark.fleet]

COPIES = 2
LONG = ("Failed", "StoreError", ("no space left on device " * 30)[:512])
LEADS = "modelcache_operator_is_leader 1.0"


async def in_thread(act, *arguments):
    return await asyncio.to_thread(act, *arguments)


# --- C40 ----------------------------------------------------------------------------------------


async def test_C40_no_object_grows_with_the_fleet_and_all_of_them_can_be_written(stage):
    """On a third of the nodes each copy fails, and says why at length."""
    failing = set(stage.nodes[::3])
    for name in failing:
        stage.fleet.nodes[name].default_verdict = LONG
    await stage.fill("All")

    def wanted(number):
        pool = set(stage.nodes_for(number))
        return f"{len(pool - failing)}/{len(pool)}"

    await stage.until_copies(wanted)
    for number in range(stage.caches):
        status = (await stage.cache(f"c{number}"))["status"]
        failed = len(failing & set(stage.nodes_for(number)))
        shown = len(status.get("failures", ()))
        assert status["copies"]["failed"] == failed
        assert (shown, status.get("failuresOmitted", 0)) == (min(8, failed), failed - shown)
    assert max(await sizes(stage, MODEL_CACHES)) < 20_000
    assert max(await sizes(stage, MODEL_VERSIONS)) < 10_000
    # It has the most of all, and none of it is of another node.
    assert max(await sizes(stage, CACHE_NODES)) < 100_000

    await stage.place(1)
    await stage.until_copies(lambda _number: "1/1")


async def sizes(stage, resource):
    namespace = None if resource is CACHE_NODES else stage.namespace
    return [len(json.dumps(one)) for one in (await stage.kube.list(resource, namespace)).items]


# --- C44 ----------------------------------------------------------------------------------------


async def test_C44_series_of_what_is_gone_vanish_from_both_replicas(stage):
    """Every ModelCache rolls to other versions, and goes; so does a tenth of the nodes."""
    await stage.until_all(lambda: node_series(stage), lambda found: found == len(stage.nodes) * 2)
    base = [objects(series(await read_metrics(one))) for one in stage.replicas]
    await stage.fill(COPIES)
    await stage.until_copies(lambda _number: f"{COPIES}/{COPIES}")
    for turn in range(3):
        await roll(stage, turn)
        await stage.until_copies(lambda _number: f"{COPIES}/{COPIES}")
    await stage.delete_models()
    gone = stage.nodes[: max(1, len(stage.nodes) // 10)]
    await _bounded(stage.remove_node, gone)
    for replica, before in zip(stage.replicas, base, strict=True):
        left = {one for one in before if not any(f'"{name}"' in one for name in gone)}

        async def differs(replica=replica, left=left):
            return sorted(objects(series(await read_metrics(replica))) ^ left)[:10]

        await stage.until_all(differs, [])
        own = {one for one in series(await read_metrics(replica)) if one.startswith(OWN)}
        # By kinds, verbs and codes: not by what there is.
        assert len(own) < 400
        labels = "".join(one.partition("{")[2] for one in own)
        assert not re.search(r"sha256|://|[0-9a-f]{8}-[0-9a-f]{4}-|fleet-\d", labels)


OWN = ("modelcache_operator", "python", "process")


async def roll(stage, turn):
    """Each ModelCache has a new version, whose name nothing had before."""

    async def one(number):
        name = f"m{number}-{turn}"
        await stage.apply_version(name, uri=f"s3://{stage.bucket.name}/m{number}")
        spec = {"spec": {"stable": {"modelVersion": name}}}
        await stage.kube.merge_patch(MODEL_CACHES, f"c{number}", spec, namespace=stage.namespace)

    await _bounded(one, range(stage.caches))


async def node_series(stage):
    told = [await read_metrics(one) for one in stage.replicas]
    return sum(text.count(f'modelcache_node_ready{{node="{stage.name}-') for text in told)


def series(text):
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def objects(found):
    return {one for one in found if not one.startswith(OWN)}


# --- C52 ----------------------------------------------------------------------------------------


async def test_C52_of_two_replicas_one_works_and_no_copy_is_begun_twice(stage):
    """The leader is killed in the middle; then a ghost from the future holds the Lease."""
    moments_of_two = []
    watcher = asyncio.create_task(watch_for_two_leaders(stage.replicas, moments_of_two))
    half = stage.caches // 2
    names = [one.name for one in stage.replicas]
    try:
        await stage.until_all(stage.leader, lambda name: name in names)
        await stage.fill(COPIES, range(half))
        await stage.until_all(lambda: begun(stage), lambda count: count >= half // 2)
        active = stage.replicas[names.index(await stage.leader())]
        await in_thread(active.kill)
        await stage.fill(COPIES, range(half, stage.caches))
        (other,) = (one for one in names if one != active.name)
        await stage.until_all(stage.leader, other)
        await in_thread(active.start)
        await stage.until_copies(lambda _number: f"{COPIES}/{COPIES}")
    finally:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher
        await start_all(stage)
    assert moments_of_two == []
    once = Counter(stage.fleet.downloads)
    assert [pair for pair, times in once.items() if times > 1] == []
    assert len(once) == stage.caches * COPIES

    for one in stage.replicas:
        await in_thread(one.kill)
    ghost = {"holderIdentity": "ghost", "renewTime": "2099-01-01T00:00:00.000000Z"}
    await stage.kube.merge_patch(
        LEASES, "modelcache-operator-leader", {"spec": ghost}, namespace="modelcache-system"
    )
    await start_all(stage)
    await stage.until_all(stage.leader, lambda name: name in names)
    await stage.place(COPIES + 1)
    await stage.until_copies(lambda _number: f"{COPIES + 1}/{COPIES + 1}")
    assert len(stage.fleet.downloads) == len(set(stage.fleet.downloads))
    assert len(stage.fleet.downloads) == stage.caches * (COPIES + 1)


async def start_all(stage):
    for one in stage.replicas:
        await in_thread(one.start)


async def begun(stage):
    return len(stage.fleet.downloads)


async def watch_for_two_leaders(replicas, moments):
    """Ask both, again and again; the first one twice, so that an orderly change is none."""
    first, second = replicas
    while True:
        told = [LEADS in await read_metrics(one) for one in (first, second, first)]
        if all(told):
            moments.append(told)
        await asyncio.sleep(0.2)


# --- C61 ----------------------------------------------------------------------------------------


class ListingDoor(FaultProxy):
    """Before the store; counts the lists of each folder."""

    def __init__(self, upstream):
        super().__init__(upstream, max_requests=10**9)
        self.lists = Counter()

    def edit(self, target, body):
        query = parse_qs(urlsplit(target).query)
        if prefix := query.get("prefix"):
            with self.lock:
                self.lists[prefix[0].strip("/")] += 1
        return body


async def test_C61_looks_that_were_missed_are_made_up_for_once_and_go_on_in_time(stage):
    """Sources are looked at once a period; for three periods nobody is there to do it."""
    loop = asyncio.get_running_loop()
    # One namespace has one look at a time.
    period = max(10, stage.caches // 4)
    address = urlsplit(stage.store.endpoint)
    with ListingDoor((address.hostname, address.port)) as door:
        await stage.add_versions(endpoint=door.endpoint, recheck_interval=f"{period}s")
        await stage.place(1)
        await stage.until_copies(lambda _number: "1/1")
        await stage.until_all(lambda: fewest(stage, door), lambda count: count >= 2)
        for one in stage.replicas:
            await in_thread(one.stop)
        await asyncio.sleep(3 * period)
        door.lists.clear()
        started = loop.time()
        await start_all(stage)
        await stage.until_all(lambda: fewest(stage, door), lambda count: count >= 2)
        assert_in_time(door, started, loop.time(), period)

        await set_source(stage, recheckInterval="24h")
        await settle(stage, door)
        door.lists.clear()
        started = loop.time()
        await set_source(stage, recheckInterval=f"{period}s")
        await stage.until_all(lambda: fewest(stage, door), lambda count: count >= 2)
        assert_in_time(door, started, loop.time(), period)

        digests = {
            name: status["contentDigest"]
            for name, status in (await stage.statuses(MODEL_VERSIONS)).items()
        }
        await _bounded(lambda name: stage.patch_version({"digest": digests[name]}, name), digests)
        await settle(stage, door)
        door.lists.clear()
        await asyncio.sleep(2 * period)
        assert not door.lists, "what is pinned, which is for good, is not looked at"


async def set_source(stage, **changes):
    names = await stage.statuses(MODEL_VERSIONS)
    await _bounded(lambda name: stage.patch_version({"source": changes}, name), names)


async def settle(stage, door):
    """No list for a while: what had been due is done."""
    before = -1
    while before != (before := sum(door.lists.values())):  # noqa: ASYNC110 - it counts by itself
        await asyncio.sleep(5)


async def fewest(stage, door):
    return min(door.lists[f"m{number}"] for number in range(stage.caches))


def assert_in_time(door, started, ended, period):
    """One look at once, and then one a period; a busy machine makes fewer."""
    most = 1 + int((ended - started) / period)
    assert max(door.lists.values()) <= most, door.lists.most_common(3)
