"""What each profile says where it cannot be used."""

import os
from pathlib import Path

import pytest

from modelcache_testbed import TestbedError
from modelcache_testbed.__main__ import main
from modelcache_testbed.errors import ProgramMissingError
from modelcache_testbed.instance import Instance, InstanceRecord
from modelcache_testbed.profiles import kind
from modelcache_testbed.real_nodes import cgroups, machine


@pytest.fixture
def instance(tmp_path, monkeypatch):
    monkeypatch.setenv("MODELCACHE_STATE_DIR", str(tmp_path / "state"))
    return Instance(tmp_path / "instance")


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A machine with nothing but the programs that a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(name, script):
        file = folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    return put


def test_kind_names_everything_that_is_missing_and_the_other_way(instance, programs):
    with pytest.raises(ProgramMissingError) as refusal:
        kind.check_machine(instance)
    for said in ("kind is not installed", "docker is not installed", "--profile nodes"):
        assert said in str(refusal.value)


def test_kind_tells_a_daemon_that_does_not_answer(instance, programs):
    programs("kind", "exit 0")
    programs("docker", "exit 1")
    with pytest.raises(ProgramMissingError, match="no Docker daemon answers") as refusal:
        kind.check_machine(instance)
    assert "not installed" not in str(refusal.value)


def test_kind_explains_a_node_image_that_cannot_be_pulled(instance, programs):
    programs("kind", '[ "$1" = get ] && exit 0; echo "failed to pull image: no route" >&2; exit 1')
    programs("docker", "exit 0")
    kind.check_machine(instance)
    with pytest.raises(TestbedError, match="docker load") as refusal:
        kind.prepare(instance, ())
    assert "no route" in str(refusal.value)
    assert "--profile nodes" in str(refusal.value)


def test_kind_creates_the_cluster_of_its_file_once(instance, programs, tmp_path):
    calls = tmp_path / "calls"
    programs("kind", f'echo "$@" >> {calls}; [ "$1" = get ] && echo modelcache-instance; exit 0')
    kind.prepare(instance, ())
    assert calls.read_text() == "get clusters\n"
    calls.write_text("")
    programs("kind", f'echo "$@" >> {calls}')
    kind.prepare(instance, ())
    created = calls.read_text().splitlines()[-1]
    assert f"--config={kind.CONFIGURATION}" in created
    assert f"--kubeconfig={instance.folder / 'kubeconfig'}" in created
    assert kind.CONFIGURATION.exists()


def test_the_command_ends_with_the_message_of_kind(instance, programs, capsys):
    assert main(["up", "--profile", "kind", "--name", "x"]) == 1
    assert "error: profile kind cannot be used here" in capsys.readouterr().err


def test_an_instance_keeps_its_profile(instance, capsys):
    instance.create(InstanceRecord("control-plane"))
    assert main(["up", "--profile", "nodes", "--dir", str(instance.folder)]) == 1
    assert "holds a cluster of the profile control-plane" in capsys.readouterr().err


def test_real_nodes_need_root(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TestbedError, match="run it as root"):
        machine.require_machine([tmp_path])


def test_real_nodes_need_the_older_cgroups(monkeypatch, tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    monkeypatch.setattr(cgroups, "_MOUNTS", mounts)
    with pytest.raises(TestbedError, match="use the profile kind"):
        cgroups.tracking_hierarchy()


def test_state_may_not_lie_where_nodes_have_folders_of_their_own(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine, "tracking_hierarchy", lambda: Path("/"))
    with pytest.raises(TestbedError, match="MODELCACHE_STATE_DIR"):
        machine.require_machine([Path("/var/lib/somewhere")])


def test_missing_packages_are_named_where_they_cannot_be_installed(programs):
    with pytest.raises(ProgramMissingError, match="apt-get install nftables runc"):
        machine.ensure_packages({"runc": "runc", "nft": "nftables"})


def test_what_is_there_is_not_installed(programs):
    programs("runc", "exit 0")
    machine.ensure_packages({"runc": "runc"})
