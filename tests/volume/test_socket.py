"""The socket in a pod's volume: the whole agent at one end, the client library at the other."""

from __future__ import annotations

import asyncio
import os
import stat
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import modelcache
from fakes.agent_bench import open_bench
from fakes.fetch_world import safetensors_body
from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods
from modelcache_testbed.waiting import wait_until

POD = Pod()
OTHER = Pod(uid="22222222-2222-2222-2222-222222222222", name="embed-1")
BODIES = {"model.safetensors": safetensors_body(1 << 20, 1), "config.json": b"{}"}


@pytest.fixture
def bench(tmp_path):
    with open_bench(tmp_path) as bench:
        bench.offer("v1", BODIES)
        yield bench


@pytest.fixture
def pods(bench, tmp_path):
    return PlayedPods(bench.root, tmp_path / "kubelet")


def count_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def hold(bench):
    bench.cluster.want(bench.entry("v1"), caches={"search/minilm": "v1"})


def weigh(bench, weight):
    """The operator writes the weight in force."""
    bench.cluster.caches = tuple(
        cache.model_copy(update={"canary_uid": "v2", "canary_weight": weight})
        for cache in bench.cluster.caches
    )
    bench.cluster.nudge()


async def attach(volume, **options):
    return await modelcache.attach_async(root=volume.folder.content, timeout=30, **options)


async def test_a_process_hears_its_progress_and_its_weights_as_they_change(bench, pods):
    told = []
    async with bench.started():
        bench.cluster.want(caches={})
        volume = pods.add(POD)
        await bench.until(volume.folder.socket.exists, "the socket")
        waiting = asyncio.create_task(attach(volume, on_progress=told.append))
        await bench.until(lambda: told, "the first look")
        hold(bench)
        attachment = await waiting
        await bench.until(lambda: attachment.is_connected, "the line")
        await bench.until(lambda: attachment.progress().content_digest, "the last state")
        progress = attachment.progress()
        assert progress.version_uid == "v1"
        assert progress.content_digest == bench.grants.versions["v1"].content_digest
        assert attachment.weights() == {"stable": 100}
        assert attachment.choose("request-1") == "stable"
        for weight in (30, 100, 0):
            weigh(bench, weight)
            expected = {"stable": 100 - weight, "canary": weight}
            await bench.until(
                lambda expected=expected: attachment.weights() == expected, "the weight"
            )
        assert attachment.choose("request-1") == "stable"
        assert attachment.fallbacks == 0


async def test_after_a_restart_of_the_agent_clients_come_back_and_read_the_path_meanwhile(
    bench, pods
):
    hold(bench)
    async with bench.started():
        volume = pods.add(POD)
        attachment = await attach(volume)
        weigh(bench, 10)
        await bench.until(lambda: attachment.weights().get("canary") == 10, "the weight")
    with pytest.warns(modelcache.FallbackWarning, match=r"agent\.sock.*the path alone"):
        assert attachment.weights() == {"stable": 90, "canary": 10}
    assert attachment.fallbacks == 1
    assert not attachment.is_connected
    weights = attachment.version().safetensors()
    assert all(weights.raw(name) for name in weights)
    async with bench.started():
        bench.cluster.nudge()
        await bench.until(
            lambda: attachment.weights() and attachment.is_connected, "the line to be back"
        )
        weigh(bench, 20)
        await bench.until(lambda: attachment.weights().get("canary") == 20, "the new weight")


async def test_without_a_socket_weights_come_from_the_path(bench, pods):
    hold(bench)
    async with bench.started():
        volume = pods.add(POD)
        await bench.until(lambda: volume.is_ready, "the volume")
        weigh(bench, 25)
        await bench.until(lambda: volume.status["canaryWeight"] == 25, "the weight in the file")
    volume.folder.socket.unlink()
    attachment = await attach(volume)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert attachment.weights() == {"stable": 75, "canary": 25}
    assert (attachment.is_connected, attachment.fallbacks) == (False, 0)


async def test_the_index_is_that_of_the_files_and_one_copy_for_all(bench, pods):
    hold(bench)
    async with bench.started():
        versions = []
        for pod in (POD, OTHER):
            attachment = await attach(pods.add(pod))
            versions.append(attachment.version())
        plain = modelcache.attach_folder(versions[0].path).version().index()
        for version in versions:
            index = await asyncio.to_thread(version.index)
            assert index.is_shared
            assert not plain.is_shared
            assert list(index) == list(plain)
            found = [replace(index.info(name), file=versions[0].path) for name in index]
            assert found == [replace(plain.info(n), file=versions[0].path) for n in plain]


async def test_a_refused_volume_has_no_socket_and_one_that_goes_takes_its_clients_along(
    bench, pods
):
    hold(bench)
    async with bench.started():
        thief = pods.add(replace(OTHER, namespace="thieves", cache="search/minilm"))
        volume = pods.add(POD)
        attachment = await attach(volume)
        assert attachment.weights()
        await bench.until(lambda: thief.state == "Refused", "the refusal")
        assert not thief.folder.socket.exists()
        found = volume.folder.socket.stat()
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o666
        open_before = count_descriptors()
        pods.remove(POD)

        def is_gone():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                attachment.weights()
            return not attachment.is_connected

        await bench.until(is_gone, "the end of the line")
        await bench.until(
            lambda: count_descriptors() <= open_before - 3,
            "the listener and both ends of the line to be closed",
        )
        assert attachment.weights() == {"stable": 100}


async def test_a_child_after_a_fork_has_a_line_of_its_own(bench, pods):
    hold(bench)
    async with bench.started():
        attachment = await attach(pods.add(POD))
        assert attachment.weights() == {"stable": 100}

        def in_child() -> int:
            pid = os.fork()
            if pid == 0:
                try:
                    wait_until(
                        lambda: attachment.is_connected and attachment.weights() == {"stable": 100},
                        seconds=20,
                        what="a line of its own",
                    )
                    os._exit(0)
                finally:
                    os._exit(4)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert await asyncio.to_thread(in_child) == 0
        weigh(bench, 5)
        await bench.until(lambda: attachment.weights().get("canary") == 5, "the parent's line")
        assert attachment.fallbacks == 0
