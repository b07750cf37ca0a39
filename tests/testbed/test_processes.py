"""A process is known by more than its number."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from modelcache_testbed.components import Component, Supervisor
from modelcache_testbed.errors import ComponentFailedError
from modelcache_testbed.processes import ProcessIdentity, read_pid_file, start_detached
from modelcache_testbed.waiting import wait_until


@pytest.fixture
def sleeper(tmp_path):
    identity = start_detached(
        ["/bin/sleep", "60"],
        pid_file=tmp_path / "sleeper.pid",
        log_file=tmp_path / "sleeper.log",
        folder=tmp_path,
        environment={},
    )
    yield identity
    identity.signal(signal.SIGKILL)


def sleeping(name="sleeper"):
    return Component(name, ("/bin/sleep", "60"), lambda: True)


def test_this_process_is_alive():
    assert ProcessIdentity.of(os.getpid()).is_alive()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"start_ticks": 1}, id="a number used again by a later process"),
        pytest.param({"boot_id": "another"}, id="a number written down before a reboot"),
        pytest.param({"pid": 2**22 + 1}, id="a number that nobody has"),
    ],
)
def test_a_stranger_of_the_same_number_is_not_alive(change):
    assert not replace(ProcessIdentity.of(os.getpid()), **change).is_alive()


def test_a_stranger_is_not_signalled(sleeper):
    replace(sleeper, start_ticks=sleeper.start_ticks - 1).end(grace_seconds=1)
    assert sleeper.is_alive()


def test_a_process_runs_in_a_session_of_its_own(sleeper):
    assert os.getsid(sleeper.pid) == sleeper.pid != os.getsid(0)


def test_ending_is_final_and_leaves_no_zombie(sleeper):
    sleeper.end(grace_seconds=5)
    assert not sleeper.is_alive()
    assert not Path(f"/proc/{sleeper.pid}").exists()


def test_a_process_that_ignores_being_asked_is_made_to_end(tmp_path):
    deaf = ("/bin/sh", "-c", "trap '' TERM; touch ready; while :; do sleep 1; done")
    supervisor = Supervisor(tmp_path)
    supervisor.start([Component("deaf", deaf, (tmp_path / "ready").exists)])
    supervisor.stop("deaf", grace_seconds=0.2)
    assert not supervisor.is_running("deaf")


@pytest.mark.parametrize("text", ["", "boot-id", "boot-id\n12 (a) b", "boot-id\nnonsense"])
def test_an_unreadable_pid_file_names_nobody(tmp_path, text):
    (tmp_path / "x.pid").write_text(text)
    assert read_pid_file(tmp_path / "x.pid") is None


def test_a_pid_file_survives_odd_program_names():
    fields = " ".join(["S", *(str(number) for number in range(4, 52))])
    identity = ProcessIdentity.parse(f"boot\n77 (a) S (b) {fields}\n")
    assert identity == ProcessIdentity("boot", 77, 22)


def test_starting_twice_keeps_the_first_process(tmp_path):
    supervisor = Supervisor(tmp_path)
    supervisor.start([sleeping()])
    first = supervisor.pid_of("sleeper")
    supervisor.start([sleeping()])
    assert supervisor.pid_of("sleeper") == first is not None
    supervisor.stop_all()
    assert supervisor.recorded() == []


def test_the_last_started_is_recorded_last(tmp_path):
    supervisor = Supervisor(tmp_path)
    for name in ("zebra", "ant"):
        supervisor.start([sleeping(name)])
    assert supervisor.recorded() == ["zebra", "ant"]
    supervisor.stop_all()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(("/bin/sh", "-c", "echo the port is taken; exit 3"), "the port is taken"),
        pytest.param(("/no/such/program",), "not found"),
    ],
)
def test_a_failed_start_names_component_cause_and_log(tmp_path, argv, said):
    supervisor = Supervisor(tmp_path)
    with pytest.raises(ComponentFailedError, match="etcd did not start") as failure:
        supervisor.start([Component("etcd", argv, lambda: False)])
    assert said in str(failure.value)
    assert str(supervisor.log_file("etcd")) in str(failure.value)


def test_a_program_whose_first_thread_ended_lives_until_its_last_one_did(tmp_path):
    program = (
        "import ctypes, pathlib, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "pathlib.Path('ready').touch()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    identity = start_detached(
        [sys.executable, "-c", program],
        pid_file=tmp_path / "p.pid",
        log_file=tmp_path / "p.log",
        folder=tmp_path,
        environment={},
    )
    stat = Path(f"/proc/{identity.pid}/stat")
    wait_until(lambda: ") Z " in stat.read_text(), seconds=10, what="end of the first thread")
    assert identity.is_alive()
    identity.end(grace_seconds=0.2)
    assert not stat.exists()
