"""Who has a model open, and what becomes of its bytes."""

from __future__ import annotations

import ctypes
import os

import pytest

from fakes.store_world import BODIES, opened, publish, tree_of
from modelcache_agent.tiers.usage import can_tell_use, is_open_elsewhere

SIZE = sum(len(body) for body in set(BODIES.values()))


class RawMap:
    """A map whose descriptor is closed, as a C reader has it."""

    def __init__(self, path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        ]
        self._libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        fd = os.open(path, os.O_RDONLY)
        self.size = os.fstat(fd).st_size
        self.address = self._libc.mmap(None, self.size, 1, 1, fd, 0)
        os.close(fd)

    def read(self) -> bytes:
        return ctypes.string_at(self.address, self.size)

    def close(self) -> None:
        self._libc.munmap(self.address, self.size)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def open_plainly(path):
    return path.open("rb")


@pytest.mark.parametrize("hold", [open_plainly, RawMap], ids=["open", "mapped, descriptor closed"])
def test_a_held_file_is_seen_by_any_of_its_names(tmp_path, hold):
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"x" * 5000)
    os.link(path, other)
    assert can_tell_use(tmp_path)
    assert not is_open_elsewhere(path)
    held = hold(other)
    assert is_open_elsewhere(path)
    held.close()
    assert not is_open_elsewhere(path)


def test_asking_does_not_hinder_readers(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x")
    for _ in range(200):
        assert not is_open_elsewhere(path)
        assert path.read_bytes() == b"x"


def test_C59_a_model_in_use_is_not_evicted(root):
    with opened(root) as store:
        digest = publish(store)
        held = RawMap(tree_of(root, digest) / "model.safetensors")
        assert store.find_in_use() == {digest}
        assert not store.evict(digest, ["v1"])
        assert store.survey().evicted == frozenset()
        assert tree_of(root, digest).exists()
        held.close()
        assert store.evict(digest, ["v1"])
        assert store.survey().held == ()


def test_C59_forced_removal_counts_open_bytes_as_pending_release_until_they_are_closed(root):
    body = BODIES["model.safetensors"]
    with opened(root) as store:
        digest = publish(store)
        held = RawMap(tree_of(root, digest) / "model.safetensors")
        store.remove(digest)
        survey = store.survey()
        assert survey.held == ()
        assert survey.pending_release_bytes == len(body)
        assert held.read() == body, "the reader keeps what it has"
    with opened(root) as store:
        assert store.survey().pending_release_bytes == len(body), "a restart does not forget"
        held.close()
        assert store.survey().pending_release_bytes == 0
        assert list((root / "released").iterdir()) == []


def test_removal_spares_the_blobs_of_others(root):
    with opened(root) as store:
        first = publish(store, "v1")
        second = publish(store, "v2", {**BODIES, "config.json": b"[]"})
        store.remove(first)
        assert {held.digest for held in store.survey().held} == {second}
        assert (tree_of(root, second) / "model.safetensors").read_bytes() == BODIES[
            "model.safetensors"
        ]


def test_the_same_content_can_come_back_while_its_old_bytes_are_held(root):
    with opened(root) as store:
        digest = publish(store)
        held = RawMap(tree_of(root, digest) / "model.safetensors")
        store.remove(digest)
        assert publish(store) == digest
        store.remove(digest)
        assert store.survey().pending_release_bytes == len(BODIES["model.safetensors"])
        held.close()
        assert store.survey().pending_release_bytes == 0
