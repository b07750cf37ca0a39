"""The whole agent and the volumes of pods: what is shown, to whom, when, and for how long."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from fakes.agent_bench import open_bench
from fakes.fetch_world import random_body, safetensors_body
from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods

MIB = 1 << 20
POD = Pod()
OTHER = Pod(uid="22222222-2222-2222-2222-222222222222", name="embed-1")


def bodies(seed=0, size=MIB):
    return {
        "model.safetensors": safetensors_body(size, seed),
        "config.json": b'{"seed": %d}' % seed,
        "1_Pooling/config.json": random_body(100, seed),
    }


@pytest.fixture
def bench(tmp_path):
    with open_bench(tmp_path) as bench:
        yield bench


@pytest.fixture
def pods(bench, tmp_path):
    return PlayedPods(bench.root, tmp_path / "kubelet")


@asynccontextmanager
async def holding(bench, *uids, caches, **entry):
    """An agent that holds the versions, labelled."""
    for number, uid in enumerate(uids):
        if uid not in bench.grants.versions:
            bench.offer(uid, bodies(number))
    entries = [bench.entry(uid, **entry) for uid in uids]
    bench.cluster.want(*entries, caches=caches)
    async with bench.started():
        keys = {entry.label_key for entry in entries}
        await bench.until(lambda: bench.cluster.labels == keys, "the labels")
        yield


def demands(bench):
    return [(key.namespace, key.name) for key in bench.cluster.status.demands]


async def test_a_pod_on_a_warm_node_sees_all_files_at_once(bench, pods):
    async with holding(bench, "v1", caches={"search/minilm": "v1"}):
        writes = len(bench.cluster.status_writes)
        volume = pods.add(POD)
        await bench.until(lambda: volume.is_ready, "the volume to be ready", seconds=5)
        assert volume.model == bodies()
        blob = next((bench.root / "blobs" / "sha256").iterdir())
        names = [volume.folder.model, volume.folder.hub]
        links = [path for name in names for path in name.rglob("*") if path.is_file()]
        assert blob.stat().st_ino in {path.stat().st_ino for path in links}, "no byte is copied"
        await bench.until(lambda: bench.cluster.entry("v1").mounts == 1, "the mount's report")
        assert demands(bench) == [("search", "minilm")]
        assert len(bench.cluster.status_writes) == writes + 1
        pods.remove(POD)
        await bench.until(lambda: bench.cluster.entry("v1").mounts is None, "no more mounts")
        assert demands(bench) == []


async def test_pods_of_both_tracks_see_their_versions_and_keep_them_over_a_promotion(bench, pods):
    canary = replace(OTHER, attributes={"modelcache.io/track": "canary"})
    async with holding(bench, "v1", "v2", caches={"search/minilm": "v1"}):
        ref = bench.cluster.caches[0]
        bench.cluster.caches = (ref.model_copy(update={"canary_uid": "v2", "canary_weight": 5}),)
        bench.cluster.nudge()
        old, new = pods.add(POD), pods.add(canary)
        await bench.until(lambda: old.is_ready and new.is_ready, "both volumes", seconds=5)
        assert (old.model, new.model) == (bodies(0), bodies(1))
        promoted = {"stable_uid": "v2", "held_uids": ("v1",)}
        bench.cluster.caches = (ref.model_copy(update=promoted),)
        bench.cluster.nudge()
        third = pods.add(replace(POD, uid="33333333-3333-3333-3333-333333333333"))
        await bench.until(lambda: third.is_ready, "the third volume", seconds=5)
        assert (old.model, new.model, third.model) == (bodies(0), bodies(1), bodies(1))


async def test_a_pod_on_a_cold_node_is_a_demand_and_hears_how_far_it_is(bench, pods):
    bench.offer("v1", bodies(size=24 * MIB))
    seen = []
    async with bench.started():
        bench.cluster.want(caches={})
        volume = pods.add(POD)
        await bench.until(lambda: demands(bench) == [("search", "minilm")], "the demand")
        assert volume.state == "Waiting"
        assert "not been told of a ModelCache search/minilm" in volume.status["message"]
        assert volume.model == {}
        bench.cluster.want(bench.entry("v1", known=False), caches={"search/minilm": "v1"})

        def is_ready():
            seen.append((volume.state, volume.status["percent"]))
            return volume.is_ready

        await bench.until(is_ready, "the volume to be ready")
        assert volume.status["sizeBytes"] == sum(map(len, volume.model.values()))
    assert {state for state, _percent in seen} >= {"Downloading", "Ready"}
    assert [percent for _state, percent in seen] == sorted(percent for _state, percent in seen)


async def test_nothing_is_shown_before_the_content_is_adopted(bench, pods):
    bench.offer("v1", bodies())
    bench.grants.failing_status = 503
    volume_seen = []
    async with bench.started():
        bench.cluster.want(bench.entry("v1", known=False), caches={"search/minilm": "v1"})
        volume = pods.add(POD)
        await bench.until(lambda: volume.state == "Failed", "the failure to be told")
        volume_seen.append(volume.status["reason"])
        assert volume.model == {}
        assert volume.status["message"]
        bench.grants.failing_status = None
    assert volume_seen == ["OperatorUnreachable"]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(
            replace(POD, namespace="thieves", attributes={"modelcache.io/namespace": "search"}),
            id="a namespace in the attributes",
        ),
        pytest.param(
            replace(
                POD,
                namespace="thieves",
                attributes={"csi.storage.k8s.io/pod.namespace": "search"},
                cache="search/minilm",
            ),
            id="a namespace in the name, and words that are the kubelet's",
        ),
        pytest.param(replace(POD, cache="../search/minilm"), id="a path"),
        pytest.param(replace(POD, cache="Mini_LM"), id="no name"),
    ],
)
async def test_a_forged_request_is_refused_and_shows_nothing(bench, pods, pod):
    async with holding(bench, "v1", caches={"search/minilm": "v1"}):
        volume = pods.add(pod)
        await bench.until(lambda: volume.state == "Refused", "the refusal")
        assert volume.status["reason"] == "VolumeRefused"
        assert sorted(path.name for path in volume.folder.content.iterdir()) == ["status.json"]
        await asyncio.sleep(0.3)
        assert demands(bench) == []
        assert bench.cluster.entry("v1").mounts is None


async def test_a_foreign_namespaces_pod_waits_for_a_model_cache_of_its_own(bench, pods):
    async with holding(bench, "v1", caches={"search/minilm": "v1"}):
        volume = pods.add(replace(POD, namespace="thieves"))
        await bench.until(lambda: demands(bench) == [("thieves", "minilm")], "the demand")
        assert volume.state == "Waiting"
        assert volume.model == {}
        assert "search" not in json.dumps(volume.status)


async def test_C58_a_pod_sees_all_of_v1_or_all_of_v2_and_its_folder_never_changes(bench, pods):
    async with holding(bench, "v1", caches={"search/minilm": "v1"}):
        old = pods.add(POD)
        await bench.until(lambda: old.is_ready, "the first volume")
        inodes = [path.stat().st_ino for path in (old.folder.content, old.folder.model)]
        bench.offer("v2", bodies(1))
        bench.cluster.want(bench.entry("v2"), caches={"search/minilm": "v2"})
        await bench.until(lambda: bench.cluster.labels == {bench.entry("v2").label_key}, "v2")
        new = pods.add(OTHER)
        await bench.until(lambda: new.is_ready, "the second volume")
        assert (old.model, new.model) == (bodies(0), bodies(1))
        assert [p.stat().st_ino for p in (old.folder.content, old.folder.model)] == inodes
        assert bench.tree("v1").exists(), "the copy stays while a pod shows it"
    async with bench.started():
        bench.cluster.nudge()
        await bench.until_state("v2", "Cached")
        assert old.model == bodies(0), "a container that restarts finds what it began with"
        pods.remove(POD)
        await bench.until(lambda: not bench.tree("v1").exists(), "v1 to go with its last pod")
        assert new.model == bodies(1)


async def test_a_shown_copy_is_neither_evicted_nor_removed_after_a_restart(bench, pods):
    bench.capacity = 3 * MIB
    bench.offer("v1", bodies(0, 2 * MIB))
    bench.offer("big", bodies(1, 2 * MIB))
    async with holding(bench, "v1", caches={"search/minilm": "v1"}, evictable=True):
        volume = pods.add(POD)
        await bench.until(lambda: volume.is_ready, "the volume")
    for wanted in (["v1", "big"], ["big"]):
        async with bench.started():
            entries = [bench.entry(uid, evictable=True) for uid in wanted]
            bench.cluster.want(*entries, caches={"search/minilm": "v1"})
            await bench.until_state("big", "Failed", "InsufficientSpace")
            assert volume.model == bodies(0, 2 * MIB)
            assert bench.tree("v1").exists()
    async with bench.started():
        bench.cluster.nudge()
        pods.remove(POD)
        await bench.until_state("big", "Cached")


async def test_an_evicted_version_comes_back_when_a_pod_asks_for_it(bench, pods):
    bench.capacity = 3 * MIB
    bench.offer("v1", bodies(0, 2 * MIB))
    bench.offer("big", bodies(1, 2 * MIB))
    async with holding(bench, "v1", caches={"search/minilm": "v1"}, evictable=True):
        bench.cluster.want(bench.entry("v1", evictable=True), bench.entry("big", evictable=True))
        await bench.until_state("big", "Cached")
        assert bench.cluster.state("v1")[0] == "Evicted"
        volume = pods.add(POD)
        await bench.until(lambda: volume.is_ready, "the volume")
        assert volume.model == bodies(0, 2 * MIB)
        assert bench.cluster.state("big")[0] == "Evicted"


async def test_without_the_operators_list_a_new_pod_waits_and_an_old_one_reads_on(bench, pods):
    async with holding(bench, "v1", caches={"search/minilm": "v1"}):
        old = pods.add(POD)
        await bench.until(lambda: old.is_ready, "the first volume")
    async with bench.started():
        new = pods.add(OTHER)
        await bench.until(lambda: "operator's list" in new.status["message"], "the reason")
        assert (old.is_ready, old.model) == (True, bodies())
        bench.cluster.nudge()
        await bench.until(lambda: new.is_ready, "the second volume")


async def test_a_volume_that_is_taken_away_meanwhile_harms_nobody(bench, pods):
    async with holding(bench, "v1", caches={"search/minilm": "v1"}):
        for number in range(30):
            pod = replace(POD, uid=f"pod-{number}")
            pods.add(pod)
            await asyncio.sleep(0.001 * (number % 7))
            pods.remove(pod)
        last = pods.add(OTHER)
        await bench.until(lambda: last.is_ready, "the last volume")
        left = {path.name for path in (bench.root / "pods").iterdir()}
        assert left == {OTHER.uid, ".changed"}


async def test_a_damaged_record_still_protects_what_is_shown(bench, pods):
    async with holding(bench, "v1", caches={"search/minilm": "v1"}):
        volume = pods.add(POD)
        await bench.until(lambda: volume.is_ready, "the volume")
        volume.folder.record.write_text("{")
        bench.cluster.want(caches={})
        await bench.until(lambda: bench.cluster.labels == frozenset(), "the label to go")
        await asyncio.sleep(0.5)
        assert bench.tree("v1").exists()
        assert volume.model == bodies()


async def test_C59_bytes_given_up_under_a_pod_are_pending_release_until_its_volume_goes(
    bench, pods
):
    """Damage is the only thing that takes a shown content away; nothing else is evicted for it."""
    bench.offer("v1", bodies(0, 2 * MIB))
    bench.offer("v2", bodies(1))
    async with holding(bench, "v1", "v2", caches={"search/minilm": "v1"}, evictable=True):
        volume = pods.add(POD)
        await bench.until(lambda: volume.is_ready, "the volume")
    damage(bench, volume, "config.json")
    with (volume.folder.model / "model.safetensors").open("rb") as reader:
        async with bench.started():
            bench.cluster.nudge()
            await bench.until(
                lambda: bench.cluster.status.tiers[0].pending_release_bytes, "the damage"
            )
            assert bench.cluster.status.tiers[0].pending_release_bytes // MIB == 2
            await bench.until_state("v1", "Cached")
            assert bench.cluster.status.tiers[0].pending_release_bytes // MIB == 2
            assert bench.cluster.state("v2")[0] == "Cached"
            assert reader.read() == bodies(0, 2 * MIB)["model.safetensors"]
    async with bench.started():
        bench.cluster.nudge()
        pods.remove(POD)
        await bench.until(
            lambda: bench.cluster.status.tiers[0].pending_release_bytes == 0, "the release"
        )


def damage(bench, volume, path) -> None:
    """The blob's bytes change under everybody, as a bad disk changes them."""
    file = volume.folder.model / path
    file.chmod(0o644)
    file.write_bytes(b"[]")
