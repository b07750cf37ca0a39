"""One agent for one store, whatever becomes of the others."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from fakes.store_world import in_child, opened, publish
from modelcache_agent.tiers.errors import StoreRefusedError
from modelcache_agent.tiers.lock import StoreLock


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def test_C17_a_second_agent_is_refused_and_told_who_is_there(root):
    says = rf"process {os.getpid()}.*one agent per store"
    with opened(root), pytest.raises(StoreRefusedError, match=says), opened(root):
        pass
    with opened(root):
        pass


def test_C17_a_dead_owners_lock_is_taken_at_once_and_the_file_is_never_unlinked(root):
    with opened(root):
        inode = (root / "lock").stat().st_ino

    def die():
        with opened(root) as store:
            publish(store)
            os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(5):
        assert in_child(die) == -signal.SIGKILL
        with opened(root) as store:
            assert len(store.survey().held) == 1
        assert (root / "lock").stat().st_ino == inode


def test_C17_three_processes_that_come_and_go_never_hold_the_lock_at_once(tmp_path):
    """Each holder makes a folder and removes it; two at once would collide."""
    path, inside = tmp_path / "lock", tmp_path / "inside"

    def contend(seed):
        chance = random.Random(seed)
        deadline = time.monotonic() + 3
        rounds = 0
        while rounds < 60 and time.monotonic() < deadline:
            lock = StoreLock(path)
            try:
                lock.acquire()
            except StoreRefusedError:
                time.sleep(chance.random() * 0.001)
                continue
            inside.mkdir()
            time.sleep(chance.random() * 0.002)
            inside.rmdir()
            lock.close()
            rounds += 1

    children = []
    for seed in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                contend(seed)
            except BaseException:  # noqa: BLE001 - a forked child must not return into pytest
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
