"""The driver is killed between any two steps; the kubelet asks again."""

from __future__ import annotations

import os
import random
import threading
from contextlib import suppress
from dataclasses import replace

import grpc
import pytest

from fakes.played_kubelet import Pod
from modelcache_agent.volume.publisher import Publisher
from modelcache_agent.volume.requests import PublishRequest

POD = Pod()
PUBLISH_STEPS = ("folder", "status", "record", "target", "mount", "mounted")
UNPUBLISH_STEPS = ("unmount", "rename", "remove")


def left_in(room) -> list[str]:
    return [path.name for path in (room.store / "pods").iterdir() if path.name != ".changed"]


class Life:
    """One life of the driver, which may end at a step."""

    def __init__(self, room, dies_at: str | None = None) -> None:
        self.room, self.dies_at = room, dies_at
        self.target = room.target(POD.uid, POD.volume)
        self.publisher = Publisher(room.store, room.kubelet, step=self._step)

    def _step(self, name: str) -> None:
        if name == self.dies_at:
            os._exit(9)

    def publish(self) -> None:
        self.publisher.publish(
            PublishRequest(
                POD.volume_id,
                str(self.target),
                is_read_only=True,
                is_block=False,
                context=POD.context,
            )
        )

    def unpublish(self) -> None:
        self.publisher.unpublish(POD.volume_id, str(self.target))


@pytest.mark.parametrize("step", PUBLISH_STEPS)
@pytest.mark.parametrize("sweeps", [False, True], ids=["asked again", "a new life"])
def test_a_kill_while_publishing_leaves_what_can_be_finished(room, step, sweeps):
    assert room.inside(Life(room, step).publish) == 9
    is_recorded = (room.store / "pods" / POD.uid / POD.volume_id / "volume.json").exists()
    assert is_recorded is (step in {"target", "mount", "mounted"}), "recorded before it is mounted"
    life = Life(room)

    def finish() -> None:
        if sweeps:
            life.publisher.sweep()
        life.publish()
        assert (life.target / "status.json").is_file()
        assert os.statvfs(life.target).f_flag & os.ST_RDONLY

    assert room.inside(finish) == 0
    assert room.mounts() == [str(life.target)]
    assert room.inside(life.unpublish) == 0
    assert (room.mounts(), left_in(room)) == ([], [])


@pytest.mark.parametrize("step", PUBLISH_STEPS)
def test_a_pod_that_is_deleted_after_the_kill_leaves_nothing(room, step):
    assert room.inside(Life(room, step).publish) == 9
    life = Life(room)
    assert room.inside(life.unpublish) == 0
    assert (room.mounts(), left_in(room), life.target.exists()) == ([], [], False)


@pytest.mark.parametrize("step", UNPUBLISH_STEPS)
@pytest.mark.parametrize("sweeps", [False, True], ids=["asked again", "a new life"])
def test_a_kill_while_unpublishing_leaves_nothing_in_the_end(room, step, sweeps):
    life = Life(room)
    assert room.inside(life.publish) == 0
    assert room.inside(Life(room, step).unpublish) == 9

    def finish() -> None:
        if sweeps:
            life.publisher.sweep()
        life.unpublish()
        life.publisher.sweep()

    assert room.inside(finish) == 0
    assert (room.mounts(), left_in(room), life.target.exists()) == ([], [], False)


@pytest.mark.slow
def test_a_hundred_volumes_come_and_go_while_the_driver_is_killed_at_random(kubelet, room):
    chance = random.Random(7)
    for number in range(100):
        pod = replace(POD, uid=f"pod-{number}", name=f"embed-{number}")
        kills = chance.random() < 0.12
        if kills:
            timer = threading.Timer(chance.random() * 0.02, kubelet.process.kill)
            timer.start()
        with suppress(grpc.RpcError):
            kubelet.publish(pod)
            if number % 2:
                kubelet.unpublish(pod)
        if kills:
            timer.join()
            kubelet.process.wait(10)
            kubelet.start_driver()
        if number % 3 == 0:
            target = kubelet.publish(pod)
            assert room.mounts() == [str(target)]
        kubelet.unpublish(pod)
        assert (room.mounts(), left_in(room)) == ([], [])
