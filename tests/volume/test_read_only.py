"""What a pod may do in its volume: read."""

from __future__ import annotations

import errno
import os
import sys

import pytest

from fakes.mount_room import READER_UID
from fakes.played_kubelet import Pod
from modelcache_agent.volume import mounts

POD = Pod()
BODY = b"weights" * 1000
# Tries to change one thing; prints the name of the error, or what it has done.
ATTACK = """
import errno, os, sys
os.chdir(sys.argv[1])
try:
    exec(sys.argv[2])
except OSError as error:
    print(errno.errorcode[error.errno])
else:
    print("done")
"""
ATTACKS = {
    "create": "open('new', 'w')",
    "write": "open('model/weights', 'r+b')",
    "truncate": "os.truncate('model/weights', 0)",
    "remove": "os.unlink('model/weights')",
    "rename": "os.rename('model', 'other')",
    "make a folder": "os.mkdir('folder')",
    "change the mode": "os.chmod('model/weights', 0o777)",
    "change the owner": "os.chown('model/weights', 1000, 1000)",
    "change the times": "os.utime('model/weights', (0, 0))",
    "set an attribute": "os.setxattr('model/weights', 'user.x', b'x')",
    "link in": "os.link('model/weights', 'again')",
}


@pytest.fixture
def target(kubelet, room):
    target = kubelet.publish(POD)
    model = room.store / "pods" / POD.uid / POD.volume_id / "content" / "model"
    model.mkdir()
    (model / "weights").write_bytes(BODY)
    (model / "weights").chmod(0o444)
    return target


def attack(room, target, code, uid) -> str:
    return room.run(sys.executable, "-c", ATTACK, str(target), code, uid=uid).stdout.strip()


@pytest.mark.parametrize("uid", [READER_UID, 0], ids=["a user", "root without capabilities"])
def test_nobody_in_a_pod_can_change_what_all_pods_share(room, target, uid):
    found = {name: attack(room, target, code, uid) for name, code in ATTACKS.items()}
    assert set(found.values()) <= {"EROFS", "EACCES", "EPERM"}, found
    weights = room.store / "pods" / POD.uid / POD.volume_id / "content" / "model" / "weights"
    assert weights.read_bytes() == BODY
    assert sorted(path.name for path in weights.parent.parent.iterdir()) == ["model", "status.json"]


def test_even_full_root_is_stopped_by_the_mount_itself(room, target):
    assert attack(room, target, ATTACKS["write"], None) == "EROFS"
    assert attack(room, target, ATTACKS["create"], None) == "EROFS"


def test_a_pod_cannot_remount_it_writable(room, target):
    for options in ("remount,bind,rw", "remount,rw"):
        for uid in (READER_UID, 0):
            assert room.run("mount", "-o", options, str(target), uid=uid).returncode != 0
    assert attack(room, target, ATTACKS["write"], None) == "EROFS"


def test_C46_a_reader_of_any_user_reads(room, target):
    shown = room.run("sh", "-c", f"cat {target}/model/weights | wc -c", uid=READER_UID)
    assert shown.stdout.strip() == str(len(BODY))


@pytest.mark.parametrize("mount", [mounts.mount_read_only, mounts.mount_by_staging])
def test_the_mount_is_never_writable_not_even_for_an_instant(room, mount, monkeypatch):
    """Each system call that attaches something below the target is looked at right after it."""
    source, target, staging = (room.folder / name for name in ("source", "target", "staging"))
    source.mkdir()
    target.mkdir()
    seen: list[bool] = []

    def watching(call):
        def wrapped(*arguments):
            result = call(*arguments)
            if target.stat().st_ino == source.stat().st_ino:
                seen.append(bool(os.statvfs(target).f_flag & os.ST_RDONLY))
            return result

        return wrapped

    def work() -> None:
        monkeypatch.setattr(mounts, "_call", watching(mounts._call))
        monkeypatch.setattr(mounts, "_mount", watching(mounts._mount))
        mount(source, target, staging)
        assert seen
        assert all(seen)
        assert mounts.shows_read_only(target, source)
        mounts.unmount(target)
        assert not mounts.shows_read_only(target, source)
        assert not staging.exists()

    assert room.inside(work) == 0


def test_kernels_without_the_new_calls_get_the_same_by_other_means(room, monkeypatch):
    source, target, staging = (room.folder / name for name in ("source", "target", "staging"))
    source.mkdir()
    target.mkdir()

    def unknown(*_arguments):
        raise OSError(errno.ENOSYS, "Function not implemented")

    def work() -> None:
        monkeypatch.setattr(mounts, "_call", unknown)
        mounts.mount_read_only(source, target, staging)
        assert mounts.shows_read_only(target, source)

    assert room.inside(work) == 0
