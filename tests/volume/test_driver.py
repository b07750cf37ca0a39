"""The driver's process as the kubelet meets it."""

from __future__ import annotations

import json
import os
import signal
import stat
from dataclasses import replace

import grpc
import pytest

from fakes.played_kubelet import Pod, decode
from modelcache_agent.volume.records import read_record
from modelcache_testbed.waiting import wait_until

POD = Pod()
CODES = grpc.StatusCode


def refusal(call) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def folder_of(room, pod=POD):
    return room.store / "pods" / pod.uid / pod.volume_id


def left_in(store) -> list[str]:
    return [path.name for path in (store / "pods").iterdir() if path.name != ".changed"]


def test_the_kubelet_finds_the_driver_by_its_registration(kubelet):
    info = kubelet.plugin_info()
    assert (info[1], info[2], info[4]) == ([b"CSIPlugin"], [b"csi.modelcache.io"], [b"1.0.0"])
    endpoint = kubelet.endpoint
    assert endpoint == kubelet.room.kubelet / "plugins" / "csi.modelcache.io" / "csi.sock"
    assert stat.S_IMODE(endpoint.stat().st_mode) == 0o600
    plugin = kubelet.call(endpoint, "csi.v1.Identity/GetPluginInfo", {})
    assert plugin[1] == [b"csi.modelcache.io"]
    assert kubelet.call(endpoint, "csi.v1.Identity/GetPluginCapabilities", {}) == {}
    assert decode(kubelet.call(endpoint, "csi.v1.Identity/Probe", {})[1][0]) == {1: [1]}
    assert kubelet.call(endpoint, "csi.v1.Node/NodeGetCapabilities", {}) == {}
    assert kubelet.call(endpoint, "csi.v1.Node/NodeGetInfo", {}) == {1: [b"n1"]}


def test_a_driver_that_the_kubelet_refuses_ends_so_that_it_is_seen(kubelet):
    notify = "pluginregistration.Registration/NotifyRegistrationStatus"
    kubelet.call(kubelet.registration, notify, {1: True})
    assert kubelet.process.poll() is None
    kubelet.call(kubelet.registration, notify, {1: False, 2: "no such version"})
    assert kubelet.process.wait(20) == 1
    assert "no such version" in kubelet.log.read_text()


def test_a_volume_is_mounted_at_once_and_says_what_it_waits_for(kubelet, room):
    target = kubelet.publish(POD)
    shown = json.loads(room.run("cat", str(target / "status.json")).stdout)
    assert (shown["state"], shown["cache"]) == ("Waiting", "search/minilm")
    assert room.run("ls", str(target)).stdout.split() == ["status.json"]
    record = json.loads((folder_of(room) / "volume.json").read_bytes())
    assert record["pod_namespace"] == "search"
    assert record["pod_uid"] == POD.uid
    assert record["service_account"] == "default"
    assert record["cache"] == "minilm"


def test_the_track_is_recorded_and_records_without_one_are_read(kubelet, room):
    kubelet.publish(replace(POD, attributes={"modelcache.io/track": "canary"}))
    path = folder_of(room) / "volume.json"
    assert read_record(path).track == "canary"
    older = {k: v for k, v in json.loads(path.read_bytes()).items() if k != "track"}
    path.write_text(json.dumps(older))
    assert read_record(path).track == ""


def test_both_calls_may_be_repeated(kubelet, room):
    inodes = set()
    for _ in range(3):
        target = kubelet.publish(POD)
        assert room.mounts() == [str(target)]
        inodes.add((folder_of(room) / "content").stat().st_ino)
    assert len(inodes) == 1
    for _ in range(3):
        kubelet.unpublish(POD)
        assert room.mounts() == []
        assert left_in(room.store) == []
        assert not target.exists()


def test_two_volumes_of_one_pod_are_two(kubelet, room):
    other = replace(POD, volume="more", cache="llama")
    first, second = kubelet.publish(POD), kubelet.publish(other)
    assert sorted(room.mounts()) == sorted([str(first), str(second)])
    kubelet.unpublish(POD)
    assert room.mounts() == [str(second)]
    assert folder_of(room, other).is_dir()
    kubelet.unpublish(other)
    assert left_in(room.store) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"read_only": False}, "set readOnly: true", id="a writable volume"),
        pytest.param({"capability": {1: {}}}, "readOnly: true", id="a block device"),
        pytest.param(
            {"context": {"modelcache.io/cache": "minilm"}}, "podInfoOnMount", id="no pod stated"
        ),
        pytest.param(
            {"context": {k: v for k, v in POD.context.items() if "cache" not in k}},
            "modelcache.io/cache is missing",
            id="no ModelCache named",
        ),
        pytest.param(
            {"context": POD.context | {"csi.storage.k8s.io/pod.uid": "other-pod"}},
            "UID and the mount's path differ",
            id="the uid of another pod",
        ),
        pytest.param({"volume_id": "../../x"}, "volume id", id="a volume id with a path in it"),
        pytest.param({"target": "/etc"}, "not below", id="C38 a mount elsewhere"),
        pytest.param(
            {"context": POD.context | {"modelcache.io/cache": "x" * 300}},
            "longer",
            id="a long name",
        ),
    ],
)
def test_what_can_never_be_given_is_refused_in_words_for_the_pods_events(
    kubelet, room, changes, says
):
    code, message = refusal(lambda: kubelet.publish(POD, **changes))
    assert code is CODES.INVALID_ARGUMENT
    assert says in message
    assert room.mounts() == []
    assert left_in(room.store) == []


def test_a_path_that_climbs_out_is_no_target(kubelet, room):
    target = f"{room.kubelet}/pods/{POD.uid}/../../../etc"
    assert refusal(lambda: kubelet.publish(POD, target=target))[0] is CODES.INVALID_ARGUMENT
    assert refusal(lambda: kubelet.unpublish(POD, target=target))[0] is CODES.INVALID_ARGUMENT


def test_C38_a_store_that_no_agent_keeps_is_named_and_not_written_to(kubelet, room):
    (room.store / "store.json").unlink()
    before = sorted(room.store.rglob("*"))
    code, message = refusal(lambda: kubelet.publish(POD))
    assert code is CODES.UNAVAILABLE
    assert f"no store at {room.store}" in message
    assert sorted(room.store.rglob("*")) == before
    kubelet.unpublish(POD)


def test_one_volume_id_with_another_request_is_a_conflict(kubelet):
    kubelet.publish(POD)
    other = POD.context | {"modelcache.io/cache": "llama"}
    assert refusal(lambda: kubelet.publish(POD, context=other))[0] is CODES.ALREADY_EXISTS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_mounts_and_readers_outlive_the_driver(kubelet, room, number):
    target = kubelet.publish(POD)
    (folder_of(room) / "content" / "weights").write_bytes(b"w" * 100_000)
    reader = room.start(
        *("sh", "-c", f"exec 3< {target}/weights; echo open; read _; wc -c <&3"),
        stdin=-1,
        stdout=-1,
        text=True,
    )
    assert reader.stdout.readline() == "open\n"
    code = kubelet.end_driver(number)
    assert kubelet.registration.exists() is (number == signal.SIGKILL)
    assert code == (0 if number == signal.SIGTERM else -number)
    kubelet.start_driver()
    assert kubelet.publish(POD) == target
    assert reader.communicate("go on\n", timeout=20)[0].strip() == "100000"
    assert room.run("cat", f"{target}/weights").stdout == "w" * 100_000
    kubelet.unpublish(POD)
    assert room.mounts() == []
    assert left_in(room.store) == []


def test_unpublishing_a_mount_that_is_in_use_ends_all_the_same(kubelet, room):
    target = kubelet.publish(POD)
    sleeper = room.start(
        "sh", "-c", f"cd {target}; echo in; read _", stdin=-1, stdout=-1, text=True
    )
    assert sleeper.stdout.readline() == "in\n"
    kubelet.unpublish(POD)
    assert room.mounts() == []
    assert left_in(room.store) == []
    sleeper.communicate("\n", timeout=20)


def test_a_stale_mount_of_an_earlier_life_gives_way(kubelet, room):
    target = kubelet.target(POD)
    target.mkdir()
    assert room.run("mount", "-t", "tmpfs", "stale", str(target)).returncode == 0
    kubelet.publish(POD)
    assert room.mounts() == [str(target)]
    assert room.run("ls", str(target)).stdout.split() == ["status.json"]


def test_at_its_start_the_driver_drops_what_the_kubelet_knows_no_more(kubelet, room):
    here, gone = POD, replace(POD, uid="22222222-2222-2222-2222-222222222222")
    kubelet.publish(here)
    target = kubelet.publish(gone)
    kubelet.end_driver()
    room.run("umount", str(target))
    target.rmdir()
    os.removedirs(target.parent)
    (room.store / "pods" / ".gone-old-0" / "content").mkdir(parents=True)
    half = room.store / "pods" / here.uid / "csi-half" / "content"
    half.mkdir(parents=True)
    kubelet.start_driver()
    wait_until(lambda: left_in(room.store) == [here.uid], seconds=10, what="the sweep")
    assert not half.exists()
    assert folder_of(room, here).is_dir()
    assert len(room.mounts()) == 1


def test_mounts_that_the_host_would_not_see_are_refused_at_the_start(room):
    private = room.folder / "private"
    private.mkdir()
    room.run("mount", "--bind", "--make-private", str(private), str(private))
    driver = room.start_program(
        *("csi", "--node-name=n1", f"--store={room.store}", f"--kubelet-dir={private}"),
        stderr=-1,
        text=True,
    )
    assert driver.wait(20) == 2
    assert "mountPropagation: Bidirectional" in driver.stderr.read()
