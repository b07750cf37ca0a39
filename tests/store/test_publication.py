"""A version is in the store completely or not at all."""

from __future__ import annotations

import errno
import os
import signal
import stat
import threading

import pytest

from fakes.store_world import (
    BODIES,
    find_held,
    in_child,
    make_manifest,
    opened,
    origin,
    publish,
    put_partials,
    read_tree,
    tree_of,
)
from modelcache_agent.tiers.errors import BlobMissingError
from modelcache_agent.tiers.layout import PARTIAL_MODE

MANIFEST = make_manifest(BODIES)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def count_steps(root, work) -> list[str]:
    steps = []
    with opened(root, step=steps.append) as store:
        work(store)
    return steps


def kill_at(root, number, work) -> None:
    """Run the work in a child that dies before its step of that number."""

    def body():
        left = [number]

        def step(_name):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        with opened(root, step=step) as store:
            work(store)

    assert in_child(body) == -signal.SIGKILL


def test_a_published_tree_holds_the_bytes_read_only(root):
    with opened(root) as store:
        digest = publish(store)
        assert digest == MANIFEST.digest
        assert read_tree(tree_of(root, digest)) == BODIES
        modes = {path.stat().st_mode for path in tree_of(root, digest).rglob("*") if path.is_file()}
        assert {stat.S_IMODE(mode) for mode in modes} == {0o444}
        assert not (root / "partial" / "v1").exists()


def test_equal_files_are_on_the_disk_once(root):
    with opened(root) as store:
        publish(store, "v1")
        publish(store, "v2", {**BODIES, "model.safetensors": b"another"})
        inodes = {path.stat().st_ino for path in (root / "versions").rglob("*") if path.is_file()}
        assert len(inodes) == 4


def test_a_known_blob_need_not_be_fetched_again(root):
    with opened(root) as store:
        publish(store, "v1")
        other = {**BODIES, "new.bin": b"new"}
        finished = put_partials(root, "v2", {"new.bin": b"new"})
        store.publish(make_manifest(other), finished, origin("v2"))
        assert read_tree(tree_of(root, make_manifest(other).digest)) == other


def test_a_blob_that_vanished_is_an_error_and_publishes_nothing(root):
    with opened(root) as store, pytest.raises(BlobMissingError):
        store.publish(MANIFEST, {}, origin("v1"))
    assert not tree_of(root, MANIFEST.digest).exists()


@pytest.mark.parametrize("number", range(9))
def test_C13_a_kill_between_any_two_steps_of_publication_leaves_all_or_nothing(root, number):
    with opened(root):
        pass
    put_partials(root, "v1", BODIES)
    kill_at(root, number, publish)
    with opened(root) as store:
        held = find_held(store, MANIFEST.digest)
        tree = tree_of(root, MANIFEST.digest)
        if held is None:
            assert not tree.exists()
            assert list((root / "blobs" / "sha256").iterdir()) == []
            partials = sorted((root / "partial" / "v1").glob("*.part"))
            assert len(partials) == len(BODIES), "a resumed transfer needs its files"
            assert {path.stat().st_nlink for path in partials} == {1}
            assert all(path.stat().st_mode & stat.S_IWUSR for path in partials)
        else:
            assert held.is_verified
            assert read_tree(tree) == BODIES
            left = [p for p in (root / "partial").rglob("*.part") if p.stat().st_nlink > 1]
            assert left == [], "nobody may resume into a published inode"
        assert store.survey().quarantined == 0
        publish(store)
        assert read_tree(tree) == BODIES


@pytest.mark.parametrize("number", range(8))
def test_a_publication_that_fails_at_any_step_gives_the_partial_files_back(root, number):
    """A retry resumes them, and must not write to an inode that another version published."""
    left = [number]

    def step(_name):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.ENOSPC, "No space left on device")

    with opened(root, step=step) as store:
        finished = put_partials(root, "v1", BODIES)
        with pytest.raises(OSError, match="No space"):
            store.publish(MANIFEST, finished, origin("v1"))
        for part in finished.values():
            found = part.stat()
            assert (found.st_nlink, stat.S_IMODE(found.st_mode)) == (1, PARTIAL_MODE)
        for name in ("blobs/sha256", "versions", "records", "quarantine"):
            assert list((root / name).iterdir()) == []
        assert find_held(store, MANIFEST.digest) is None
        store.publish(MANIFEST, finished, origin("v1"))
        assert read_tree(tree_of(root, MANIFEST.digest)) == BODIES


def test_the_kills_of_publication_cover_every_step(root):
    steps = count_steps(root, publish)
    assert len(steps) == 9
    assert set(steps) == {"blob", "tree", "record", "rename", "published", "drop-partial"}


@pytest.mark.parametrize("number", range(6))
def test_a_kill_between_any_two_steps_of_withdrawal_is_repaired(root, number):
    with opened(root) as store:
        digest = publish(store)
    kill_at(root, number, lambda store: store.remove(digest))
    with opened(root) as store:
        held = find_held(store, digest)
        if held is None:
            assert not tree_of(root, digest).exists()
            assert list((root / "blobs" / "sha256").iterdir()) == []
        else:
            assert read_tree(tree_of(root, digest)) == BODIES
            store.remove(digest)
        survey = store.survey()
        assert (survey.held, survey.pending_release_bytes, survey.quarantined) == ((), 0, 0)
        assert [
            path for path in root.rglob("*") if path.is_file() and path.stat().st_size > 64
        ] == []


def test_the_kills_of_withdrawal_cover_every_step(root):
    with opened(root) as store:
        digest = publish(store)
    assert len(count_steps(root, lambda store: store.remove(digest))) == 6


def test_C18_the_second_finisher_drops_its_own_copy_and_readers_never_notice(root):
    faults, stop = [], threading.Event()
    with opened(root) as store:
        digest = publish(store, "v1")
        tree = tree_of(root, digest)
        inode = (tree / "model.safetensors").stat().st_ino

        def read():
            while not stop.is_set():
                try:
                    if read_tree(tree) != BODIES:
                        faults.append("partial")
                except OSError as error:
                    faults.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(40):
            assert publish(store, f"other-{number}") == digest
        stop.set()
        reader.join()
        assert faults == []
        assert (tree / "model.safetensors").stat().st_ino == inode
        assert list((root / "partial").iterdir()) == []
        assert len(find_held(store, digest).origins) == 41


def test_a_second_blob_is_made_where_the_file_system_allows_no_more_links(root):
    with opened(root) as store:
        digest = publish(store, "v1", {"a.bin": b"shared"})
        blob = next((root / "blobs" / "sha256").iterdir())
        links = root / "quarantine" / "links"
        links.mkdir()
        try:
            for number in range(70_000):
                os.link(blob, links / str(number))
        except OSError:
            pass
        else:
            pytest.skip("this file system has no limit of links")
        other = {"a.bin": b"shared", "b.bin": b"more"}
        second = publish(store, "v2", other)
        assert read_tree(tree_of(root, second)) == other
        assert len(list((root / "blobs" / "sha256").glob(f"{blob.name}*"))) == 2
    with opened(root) as store:
        assert all(held.is_verified for held in store.survey().held)
        assert {held.digest for held in store.survey().held} == {digest, second}
