"""Two versions in one volume: the whole agent at one end, a process with both at the other."""

from __future__ import annotations

import asyncio
import os
import warnings
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

import modelcache
from fakes.agent_bench import open_bench
from fakes.fetch_world import safetensors_body
from fakes.played_kubelet import Pod
from fakes.store_world import BODIES, flip_bits, in_child, opened, publish, read_tree
from fakes.volume_world import PlayedPods
from modelcache_agent.decide.beside import RETURN_SECONDS, Beside, BesidePlan, Withdrawal
from modelcache_agent.volume import companions
from modelcache_agent.volume.beside import hide_beside, look_beside, show_beside
from modelcache_agent.volume.companions import Companions
from modelcache_api.names import EntryOrigin
from modelcache_api.v1alpha1.cache_node import CacheRef

POD = Pod()
OTHER = Pod(uid="22222222-2222-2222-2222-222222222222", name="embed-1")
MIB = 1 << 20
FILES = {
    uid: {"model.safetensors": safetensors_body(MIB, seed), "config.json": b'{"of": %d}' % seed}
    for seed, uid in enumerate(("v1", "v2"), 1)
}


@pytest.fixture
def bench(tmp_path):
    with open_bench(tmp_path) as bench:
        for uid, bodies in FILES.items():
            bench.offer(uid, bodies)
        yield bench


@pytest.fixture
def pods(bench, tmp_path):
    return PlayedPods(bench.root, tmp_path / "kubelet")


def tell(bench, *entries, **ref):
    """What the operator writes: the versions, and their parts in search/minilm."""
    parts = {"stable_uid": "v1"} | ref
    bench.cluster.caches = (CacheRef(namespace="search", name="minilm", **parts),)
    bench.cluster.want(*entries)


def entry(bench, uid, *, is_held=False):
    found = bench.entry(uid).model_copy(update={"name": f"minilm-{uid}"})
    if not is_held:
        return found
    held = {"origin": EntryOrigin.HOLD, "label_key": None, "evictable": True}
    return found.model_copy(update=held)


def canary(bench, weight):
    tell(bench, *(entry(bench, uid) for uid in FILES), canary_uid="v2", canary_weight=weight)


@asynccontextmanager
async def attached(bench, volume, *tracks):
    """Once it has heard of these tracks: folders are there a moment before the word."""
    attachment = await modelcache.attach_async(root=volume.folder.content, timeout=30)
    with attachment:
        await bench.until(lambda: attachment.is_connected, "the line")
        await bench.until(lambda: {*tracks} <= {*attachment.tracks}, "the tracks")
        yield attachment


def of_weight(attachment, key="request-17"):
    return attachment.choose_version(key).name


async def test_C45_one_process_holds_both_versions_while_one_comes_and_goes(bench, pods):
    """Both lie in a volume that was mounted before the second was there; nothing is copied."""
    async with bench.started():
        tell(bench, entry(bench, "v1"))
        volume = pods.add(POD)
        await bench.until(lambda: volume.is_ready, "the volume")
        assert not volume.folder.versions.exists()
        async with attached(bench, volume) as attachment:
            assert of_weight(attachment) == "minilm-v1"
            canary(bench, 0)
            second = volume.folder.version("minilm-v2")
            await bench.until(second.is_dir, "the canary's folder")
            assert read_tree(second) == FILES["v2"]
            assert volume.model == FILES["v1"]
            published = bench.tree("v2") / "model.safetensors"
            assert (second / "model.safetensors").stat().st_ino == published.stat().st_ino
            canary(bench, 100)
            await bench.until(lambda: of_weight(attachment) == "minilm-v2", "the weight")
            assert set(attachment.versions()) == {"minilm-v1", "minilm-v2"}
            assert attachment.tracks == ("stable", "canary")
            tensors = attachment.version("canary").safetensors()
            assert {*tensors} == {*attachment.version("minilm-v1").safetensors()}
            await bench.until(
                lambda: bench.cluster.entry("v2").mounts == 1, "its use in the status"
            )
            canary(bench, 0)
            await bench.until(lambda: of_weight(attachment) == "minilm-v1", "the rollback")
            assert attachment.misses == 0


async def test_a_version_leaves_after_its_label_and_never_under_a_process_that_uses_it(bench, pods):
    gone = []
    bench.cluster.on_labels = lambda _before, after: gone.append(
        (len(after), volume.folder.version("minilm-v2").is_dir())
    )
    async with bench.started():
        canary(bench, 50)
        volume = pods.add(POD)
        await bench.until(volume.folder.version("minilm-v2").is_dir, "the canary's folder")
        async with attached(bench, volume, "canary") as attachment:
            handle = attachment.version("canary")
            await bench.until(lambda: bench.cluster.entry("v2").mounts == 1, "the use")
            tell(bench, entry(bench, "v1"))
            await bench.until(lambda: len(bench.cluster.labels) == 1, "the label to go")
            await bench.until(lambda: handle.is_leaving, "the word that it leaves")
            await asyncio.sleep(0.5)
            assert read_tree(handle.path) == FILES["v2"]
            assert bench.tree("v2").exists(), "its bytes stay while they are shown"
            weights = handle.safetensors()
            handle.close()
            await asyncio.sleep(0.5)
            assert handle.path.is_dir(), "a file that is open or mapped counts, whoever opened it"
            weights.close()
            bench.cluster.nudge()
            await bench.until(lambda: not bench.tree("v2").exists(), "the bytes to go")
            assert not volume.folder.versions.exists()
            assert of_weight(attachment) == "minilm-v1"
    assert gone[-1] == (1, True), "the label goes first"


async def test_a_version_that_a_process_never_lets_go_goes_at_the_deadline(bench, pods):
    async with bench.started("--drain-deadline=1s"):
        canary(bench, 50)
        volume = pods.add(POD)
        await bench.until(volume.folder.version("minilm-v2").is_dir, "the canary's folder")
        async with attached(bench, volume, "canary") as attachment:
            weights = attachment.version("canary").safetensors()
            before = {name: bytes(weights.raw(name)) for name in weights}
            tell(bench, entry(bench, "v1"))

            def is_gone():
                bench.cluster.nudge()
                return not bench.tree("v2").exists()

            await bench.until(is_gone, "the bytes to go")
            assert {name: bytes(weights.raw(name)) for name in weights} == before
            assert attachment.choose_version("a", among={"minilm-v2"}).name == "minilm-v2"
            assert attachment.choose_version("a").name == "minilm-v1"
            weights.close()


async def test_what_is_held_and_unused_makes_room_for_others_and_what_is_used_does_not(bench, pods):
    bench.capacity = 3 * MIB
    bench.offer("big", {"model.safetensors": safetensors_body(2 * MIB - 4096, 9)})
    async with bench.started():
        canary(bench, 0)
        volume = pods.add(POD)
        await bench.until(volume.folder.version("minilm-v2").is_dir, "the canary's folder")
        async with attached(bench, volume, "canary") as attachment:
            handle = attachment.version("canary")
            await bench.until(lambda: bench.cluster.entry("v2").mounts == 1, "the use")
            held = entry(bench, "v2", is_held=True)
            tell(bench, entry(bench, "v1"), held, bench.entry("big"), held_uids=("v2",))
            await bench.until_state("big", "Failed", "InsufficientSpace")
            assert read_tree(handle.path) == FILES["v2"]
            handle.close()
            await bench.until_state("big", "Cached")
        assert not volume.folder.versions.exists()


async def test_C22_a_damaged_version_is_taken_out_and_comes_back_sound(bench, pods):
    for uid, bodies in FILES.items():
        bench.offer(uid, bodies, knows_content=True)
    async with bench.started("--scrub-interval=100ms", "--scrub-bandwidth=1Gi"):
        canary(bench, 50)
        volume = pods.add(POD)
        weights = volume.folder.version("minilm-v2") / "model.safetensors"
        await bench.until(weights.exists, "the canary's folder")
        damaged = weights.stat().st_ino
        flip_bits(weights, 1000)
        await bench.until(
            lambda: weights.exists() and weights.stat().st_ino != damaged, "other files"
        )
        assert read_tree(weights.parent) == FILES["v2"]
        assert volume.model == FILES["v1"]


async def test_an_agent_that_restarts_without_the_api_server_tells_what_it_told_last(bench, pods):
    async with bench.started():
        canary(bench, 25)
        volume = pods.add(POD)
        await bench.until(volume.folder.version("minilm-v2").is_dir, "the canary's folder")
        await bench.until(lambda: len(volume.status["versions"]) == 2, "the status")
        told = volume.status
    volume.folder.socket.unlink()
    async with bench.started():
        await bench.until(volume.folder.socket.exists, "the socket of the next agent")
        async with attached(bench, volume) as attachment:
            assert attachment.weights() == {"stable": 75, "canary": 25}
            assert set(attachment.versions()) == {"minilm-v1", "minilm-v2"}
            assert volume.status == told


async def test_an_agent_that_restarts_hides_nothing_before_a_process_has_spoken_to_it(
    bench, pods, monkeypatch
):
    """The process is silent meanwhile, and has no file open."""
    monkeypatch.setattr(companions, "RETURN_SECONDS", 3600.0)
    bench.offer("v3", {"model.safetensors": safetensors_body(MIB, 3)})
    async with bench.started():
        canary(bench, 50)
        volume = pods.add(POD)
        await bench.until(volume.folder.version("minilm-v2").is_dir, "the canary's folder")
        attachment = await modelcache.attach_async(root=volume.folder.content, timeout=30)
        await bench.until(lambda: "canary" in attachment.tracks, "the canary")
        handle = attachment.version("canary")
        await bench.until(lambda: bench.cluster.entry("v2").mounts == 1, "the use")
    with attachment, warnings.catch_warnings():
        warnings.simplefilter("ignore", modelcache.FallbackWarning)
        async with bench.started():
            tell(bench, entry(bench, "v1"), bench.entry("v3"))
            await bench.until_state("v3", "Cached")
            await bench.until(
                lambda: len(bench.cluster.labels) == 2, "the labels of what is wanted"
            )
            bench.cluster.nudge()
            assert read_tree(handle.path) == FILES["v2"]
            await bench.until(lambda: attachment.is_connected and handle.is_leaving, "the word")
            assert read_tree(handle.path) == FILES["v2"]


async def test_each_pod_of_a_node_has_both_and_new_pods_begin_with_the_promoted_one(bench, pods):
    async with bench.started():
        canary(bench, 50)
        old = pods.add(POD)
        await bench.until(old.folder.version("minilm-v2").is_dir, "the canary beside the first")
        entries = entry(bench, "v1", is_held=True), entry(bench, "v2")
        tell(bench, *entries, stable_uid="v2", held_uids=("v1",))
        new = pods.add(OTHER)
        await bench.until(new.folder.version("minilm-v1").is_dir, "what is held, for going back")
        assert (new.model, old.model) == (FILES["v2"], FILES["v1"])
        async with attached(bench, old) as attachment:
            await bench.until(lambda: of_weight(attachment) == "minilm-v2", "the promoted one")
            assert attachment.version().name == "minilm-v1", "its own stays for the pod's life"
        await bench.until(lambda: bench.cluster.entry("v1").mounts == 1, "the pod of the old one")


# --- kills -----------------------------------------------------------------------------------

SECOND = BODIES | {"config.json": b'{"v": 2}'}


@pytest.mark.parametrize("step", ["record", "build", "show", "shown", "hide", "hidden"])
def test_a_kill_at_any_step_leaves_all_of_a_version_or_nothing(tmp_path, step):
    def die(name):
        if name == step:
            os._exit(9)

    with opened(tmp_path / "store") as store:
        digest = publish(store, "v2", SECOND)
        folder = PlayedPods(store.layout.root, tmp_path / "kubelet").add(POD).folder
        one, stored = Beside("m-v2", "v2", digest), store.catalog.get(digest)

        def come_and_go():
            show_beside(folder, (), one, stored, store.blobs, die)
            hide_beside(folder, (one,), one, die)

        assert in_child(come_and_go) == 9
        present = look_beside(folder)
        assert read_tree(folder.version("m-v2")) == (SECOND if present else {})
        if not present:
            show_beside(folder, present, one, stored, store.blobs)
        assert read_tree(folder.version("m-v2")) == SECOND
        hide_beside(folder, look_beside(folder), one)
        assert (look_beside(folder), folder.versions.exists()) == ((), False)
        assert not folder.building.exists()


def test_a_damaged_record_shows_nothing_and_is_told(tmp_path):
    with opened(tmp_path / "store") as store:
        folder = PlayedPods(store.layout.root, tmp_path / "kubelet").add(POD).folder
        for damage in (b"[{}]", b"[1]", b"3"):
            folder.beside.write_bytes(damage)
            with pytest.raises(ValueError, match=r"beside\.json lacks a field"):
                look_beside(folder)


def test_a_version_whose_file_is_missing_takes_no_other_one_out_of_what_is_told(tmp_path):
    with opened(tmp_path / "store") as store:
        folder = PlayedPods(store.layout.root, tmp_path / "kubelet").add(POD).folder
        sound, broken = (
            Beside(f"m-{uid}", uid, publish(store, uid, bodies))
            for uid, bodies in (("v2", SECOND), ("v3", BODIES | {"config.json": b'{"v": 3}'}))
        )
        keeper = Companions(store, 60.0, lambda: 0.0)
        assert keeper.change(folder, BesidePlan(show=(sound,))).present == ("v2",)
        files = store.catalog.get(broken.digest).files
        (own,) = (file for file in files if file.content.path == "config.json")
        store.blobs.path(own).unlink()
        changed = keeper.change(folder, BesidePlan(present=(sound,), show=(broken,)))
        assert (changed.present, changed.has_freed) == (("v2",), False)
        assert read_tree(folder.version("m-v2")) == SECOND


def test_after_a_restart_a_version_that_has_left_stays_until_processes_had_time_to_speak(tmp_path):
    now = [100.0]
    with opened(tmp_path / "store") as store:
        pods = PlayedPods(store.layout.root, tmp_path / "kubelet")
        old, new = pods.add(POD).folder, pods.add(OTHER).folder
        one = Beside("m-v2", "v2", publish(store, "v2", SECOND))
        show_beside(old, (), one, store.catalog.get(one.digest), store.blobs)
        plan = BesidePlan((one,), hide=(Withdrawal(one, has_left=True, is_used=False),))
        keeper = Companions(store, 60.0, lambda: now[0])
        assert keeper.change(old, plan).look_again_at == 100.0 + RETURN_SECONDS
        keeper.note_served([old.key])
        now[0] += RETURN_SECONDS - 0.1
        assert keeper.change(old, plan).present == ("v2",)
        keeper.change(new, BesidePlan(show=(one,)))
        assert keeper.change(new, plan).has_freed, "no agent has served this pod before"
        used = BesidePlan((one,), hide=(Withdrawal(one, has_left=True, is_used=True),))
        assert keeper.change(old, used).present == ("v2",), "a process has spoken"
        now[0] += 30.0
        assert keeper.change(old, used).look_again_at == 100.0 + RETURN_SECONDS - 0.1 + 60.0
        changed = keeper.change(old, plan)
        assert (changed.present, changed.has_freed, changed.look_again_at) == ((), True, None)
        assert not old.versions.exists()


def test_after_a_restart_nothing_is_kept_whose_room_is_needed(tmp_path):
    with opened(tmp_path / "store") as store:
        folder = PlayedPods(store.layout.root, tmp_path / "kubelet").add(POD).folder
        one = Beside("m-v2", "v2", publish(store, "v2", SECOND))
        keeper = Companions(store, 60.0, lambda: 100.0)
        for withdrawal in (
            Withdrawal(one, has_left=False, is_used=False),
            Withdrawal(one, has_left=True, is_used=False, is_urgent=True),
        ):
            show_beside(folder, (), one, store.catalog.get(one.digest), store.blobs)
            assert keeper.change(folder, BesidePlan((one,), hide=(withdrawal,))).has_freed


async def test_a_volume_that_is_taken_away_takes_its_versions_with_it(bench, pods):
    async with bench.started():
        canary(bench, 50)
        volume = pods.add(POD)
        await bench.until(volume.folder.version("minilm-v2").is_dir, "the canary's folder")
        pods.remove(POD)
        other = pods.add(replace(OTHER))
        await bench.until(other.folder.version("minilm-v2").is_dir, "the canary's folder")
        assert not volume.folder.root.exists()
