from __future__ import annotations

from pathlib import PurePath

import pytest

from modelcache_agent.mounts import describe_missing_disk

HOST = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
POD = "22 1 0:50 / / rw - overlay overlay rw,lowerdir=/x\n"


def mount(device, top, point="/store", kind="ext4") -> str:
    return f"99 22 {device} {top} {point} rw,relatime shared:1 - {kind} /dev/x rw\n"


@pytest.mark.parametrize(
    ("mountinfo", "says"),
    [
        pytest.param(HOST, "root file system", id="a folder of the root"),
        pytest.param(HOST + mount("8:16", "/"), None, id="a disk"),
        pytest.param(HOST + mount("8:16", "/", "/mnt"), "root file system", id="a disk elsewhere"),
        pytest.param(HOST + mount("8:1", "/"), "once more at /store", id="the root twice"),
        pytest.param(POD, "root file system", id="a pod without a volume"),
        pytest.param(POD + mount("8:16", "/"), None, id="a pod with a disk"),
        pytest.param(
            POD + mount("8:1", "/var/lib/modelcache"),
            "the folder /var/lib/modelcache of a disk",
            id="a hostPath without a mount under it",
        ),
        pytest.param(
            POD + mount("8:1", "/var/lib/kubelet/pods/1/volumes/x"), "of a disk", id="an emptyDir"
        ),
        pytest.param(
            POD + mount("8:1", "/data") + mount("8:16", "/"), None, id="the last mount is seen"
        ),
        pytest.param(
            POD + mount("8:16", "/") + mount("8:1", "/data"), "of a disk", id="and hides others"
        ),
        pytest.param(POD + mount("8:16", "/", "/stor"), "root file", id="half a name"),
        pytest.param("rubbish\n", "root file system", id="rubbish"),
        pytest.param("", "root file system", id="nothing"),
    ],
)
def test_a_disk_of_its_own(mountinfo, says):
    found = describe_missing_disk(mountinfo, PurePath("/store"))
    assert (found is None) if says is None else (says in str(found))


def test_a_folder_below_the_mount_point_and_names_with_spaces():
    mountinfo = POD + mount("8:16", "/", r"/my\040disk")
    assert describe_missing_disk(mountinfo, PurePath("/my disk/models")) is None
