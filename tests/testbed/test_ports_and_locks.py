"""Two instances never share a port or a lock."""

import socket

import pytest

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.instance import Instance, InstanceRecord
from modelcache_testbed.locks import LockHeldError, locked
from modelcache_testbed.ports import HIGHEST, LOWEST, PortLedger, is_free


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def instance(tmp_path, monkeypatch):
    monkeypatch.setenv("MODELCACHE_STATE_DIR", str(tmp_path / "state"))
    instance = Instance(tmp_path / "instance")
    instance.create(InstanceRecord("control-plane"))
    return instance


def test_a_listening_port_is_not_free(listener):
    assert not is_free(listener)


def test_two_owners_get_different_ports(tmp_path):
    owners = [tmp_path / "a", tmp_path / "b"]
    names = [str(number) for number in range(50)]
    ledger = PortLedger(tmp_path / "ports.json")
    for owner in owners:
        owner.mkdir()
    given = [set(ledger.reserve(names, owner).values()) for owner in owners]
    assert len(given[0] | given[1]) == 100
    assert all(LOWEST <= port <= HIGHEST for port in given[0] | given[1])


def test_a_deleted_owner_holds_no_port(tmp_path):
    ledger = PortLedger(tmp_path / "ports.json")
    ledger.reserve(["x"], tmp_path / "gone")
    ledger.reserve([], tmp_path)
    assert (tmp_path / "ports.json").read_text() == "{}"


def test_ports_are_kept(instance):
    assert instance.settle_ports(["a", "b"]) == instance.settle_ports(["a", "b"])


def test_ports_move_when_a_stranger_took_one(instance, listener):
    record = instance.read()
    record.ports = {"a": listener}
    instance.write(record)
    assert instance.settle_ports(["a"])["a"] != listener


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(TestbedError, match="something else"):
        Instance(tmp_path).create(InstanceRecord("control-plane"))


def test_removing_a_folder_that_is_no_instance_deletes_nothing(tmp_path):
    (tmp_path / "thesis.tex").touch()
    Instance(tmp_path).remove()
    assert (tmp_path / "thesis.tex").exists()


def test_a_half_made_folder_is_taken_over(tmp_path):
    (tmp_path / "instance.json.new").write_text("{")
    Instance(tmp_path).create(InstanceRecord("control-plane"))
    assert Instance(tmp_path).exists


def test_a_held_lock_is_told(tmp_path):
    with (
        locked(tmp_path / "lock"),
        pytest.raises(LockHeldError),
        locked(tmp_path / "lock", wait=False),
    ):
        pass


def test_a_removed_lock_leaves_no_file(tmp_path):
    with locked(tmp_path / "lock", remove=True):
        assert (tmp_path / "lock").exists()
    assert not (tmp_path / "lock").exists()
