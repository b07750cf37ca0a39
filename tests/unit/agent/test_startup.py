"""Refusals before anything is written: one line, the option, the cure."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from modelcache_agent.config import ConfigError
from modelcache_agent.decide.watermarks import NO_WATERMARKS, Watermarks
from modelcache_agent.startup import check_store_folder, choose_capacity, choose_watermarks


def test_a_missing_folder(tmp_path):
    with pytest.raises(ConfigError, match=r"--store .*none is missing: create the folder"):
        check_store_folder(tmp_path / "none", require_mountpoint=False)


def test_C38_a_dangling_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "none")
    with pytest.raises(ConfigError, match="is a dangling link"):
        check_store_folder(tmp_path / "link", require_mountpoint=False)


def test_a_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is no folder"):
        check_store_folder(tmp_path / "file", require_mountpoint=False)


def test_a_missing_mount_keeps_the_root_disk_empty(tmp_path):
    if tmp_path.stat().st_dev != Path("/").stat().st_dev:
        pytest.skip("the temporary folder lies on a disk of its own")
    with pytest.raises(ConfigError, match=r"root file system.*mount the top folder of a disk"):
        check_store_folder(tmp_path, require_mountpoint=True)


def test_the_capacity_is_checked_against_the_file_system(tmp_path):
    assert choose_capacity(tmp_path, 4096) == 4096
    with pytest.raises(ConfigError, match=r"--capacity .* is more than the file system"):
        choose_capacity(tmp_path, 1 << 60)
    space = os.statvfs(tmp_path)
    assert choose_capacity(tmp_path, None) == int(space.f_blocks * space.f_frsize * 0.9)


def test_C54_the_watermark_of_a_shared_disk_lies_below_the_kubelets_85_percent(tmp_path):
    if tmp_path.stat().st_dev != Path("/").stat().st_dev:
        pytest.skip("the temporary folder lies on a disk of its own")
    assert choose_watermarks(tmp_path, None, None) == Watermarks(80, 75)
    assert choose_watermarks(tmp_path, 70, None) == Watermarks(70, 65)
    assert choose_watermarks(tmp_path, None, 50) == Watermarks(80, 50)
    assert choose_watermarks(tmp_path, 100, None).is_off


def test_a_disk_of_its_own_is_bounded_by_the_capacity_alone():
    own = Path("/dev/shm")
    if not own.is_mount():
        pytest.skip("there is no file system of its own at /dev/shm")
    assert choose_watermarks(own, None, None) == NO_WATERMARKS
    assert choose_watermarks(own, 80, None) == Watermarks(80, 75)


def test_watermarks_that_leave_nothing_between_them_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--disk-low-watermark 80 is not below .* 80: pressure"):
        choose_watermarks(tmp_path, 80, 80)


def run_agent(*arguments):
    command = [sys.executable, "-m", "modelcache_agent", *arguments]
    command += ["--operator-url=https://o", "--node-name=n", "--node-uid=u"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={})


def test_a_disk_that_fails_at_start_is_one_line(tmp_path):
    (tmp_path / "lock").mkdir()  # opening it answers as a disk would: with an OSError
    done = run_agent(f"--store={tmp_path}")
    assert done.returncode == 2
    assert "cannot be opened: Is a directory: mend the disk" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param([], "--store (or MODELCACHE_AGENT_STORE) is missing", id="no option"),
        pytest.param(["--store={tmp}/none"], "is missing: create the folder", id="no folder"),
        pytest.param(["--store={tmp}"], "not empty and not a store", id="somebody's folder"),
    ],
)
def test_the_process_refuses_in_one_line_with_code_2(tmp_path, arguments, says):
    (tmp_path / "precious").touch()
    done = run_agent(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_C46_a_store_of_another_owner_is_refused_with_owner_mode_and_cure(tmp_path):
    """A folder that the kubelet made for hostPath is root's, whatever fsGroup says."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    store = Path(tempfile.mkdtemp(prefix="store-", dir="/tmp"))
    store.chmod(0o755)
    command = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", sys.executable]
    command += ["-m", "modelcache_agent", f"--store={store}", "--operator-url=https://o"]
    command += ["--node-name=n", "--node-uid=u"]
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/nonexistent"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 2
        assert f"--store {store} (owner 0, mode 755) is not writable for uid 1000" in done.stderr
        assert "change its owner or run the agent as root" in done.stderr
        assert list(store.iterdir()) == []
    finally:
        store.rmdir()
