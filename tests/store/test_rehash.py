"""A verdict of a re-hash holds for the very bytes that were hashed, and only for those."""

from __future__ import annotations

import errno
import os

import pytest

from fakes.store_world import BODIES, find_held, opened, publish, read_tree, tree_of
from modelcache_agent.tiers import rehash
from modelcache_agent.tiers.rehash import RehashError, hash_version, settle

SHARED = {"model.safetensors": BODIES["model.safetensors"], "config.json": b'{"v": 2}'}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def never() -> bool:
    return False


def blob_of(store, digest, path="model.safetensors"):
    stored = store.catalog.get(digest)
    return store.blobs.path(next(f for f in stored.files if f.content.path == path))


def damage(store, digest) -> None:
    """Other bytes of the same length, as a disk makes them."""
    blob = blob_of(store, digest)
    blob.chmod(0o644)
    blob.write_bytes(bytes(blob.stat().st_size))
    store.catalog.doubt([blob.name])


def test_a_version_published_anew_meanwhile_is_left_alone(root):
    with opened(root) as store:
        digest = publish(store)
        damage(store, digest)
        hashed = hash_version(store, store.catalog.get(digest), never)
        publish(store, "another-version")
        assert settle(store, hashed) is None
        assert find_held(store, digest).is_verified
        assert read_tree(tree_of(root, digest)) == BODIES


def test_a_blob_replaced_meanwhile_by_another_version_is_left_alone(root):
    with opened(root) as store:
        digest = publish(store)
        damage(store, digest)
        hashed = hash_version(store, store.catalog.get(digest), never)
        other = publish(store, "another-version", SHARED)
        assert settle(store, hashed) is None
        assert find_held(store, other).is_verified
        assert read_tree(tree_of(root, other)) == SHARED
        assert blob_of(store, other).read_bytes() == SHARED["model.safetensors"]


def test_a_version_removed_meanwhile_is_no_failure(root):
    with opened(root) as store:
        digest = publish(store)
        damage(store, digest)
        hashed = hash_version(store, store.catalog.get(digest), never)
        store.remove(digest)
        assert settle(store, hashed) is None


def test_a_damaged_blob_makes_all_its_versions_doubtful(root):
    with opened(root) as store:
        digest = publish(store)
        other = publish(store, "another-version", SHARED)
        damage(store, digest)
        hashed = hash_version(store, store.catalog.get(digest), never)
        assert settle(store, hashed) is False
        assert find_held(store, digest) is None
        assert not find_held(store, other).is_verified


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.ENOMEM])
def test_bytes_that_cannot_be_read_for_our_own_fault_are_not_damaged(root, monkeypatch, number):
    with opened(root) as store:
        digest = publish(store)
        store.catalog.doubt([blob_of(store, digest).name])

        def fail(*_):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(rehash, "hash_file", fail)
        with pytest.raises(OSError, match=os.strerror(number)):
            hash_version(store, store.catalog.get(digest), never)
        assert find_held(store, digest) is not None


def test_bytes_that_the_disk_cannot_read_are_damaged(root, monkeypatch):
    with opened(root) as store:
        digest = publish(store)
        store.catalog.doubt([blob_of(store, digest).name])

        def fail(*_):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(rehash, "hash_file", fail)
        hashed = hash_version(store, store.catalog.get(digest), never)
        assert set(hashed.damaged) == set(store.catalog.get(digest).blob_names)


def test_bytes_written_to_while_they_are_hashed_are_not_judged(root, monkeypatch):
    with opened(root) as store:
        digest = publish(store)
        blob = blob_of(store, digest)
        store.catalog.doubt([blob.name])

        def write_and_hash(path, *_):
            os.utime(path, (1, 1))
            return path.name

        monkeypatch.setattr(rehash, "hash_file", write_and_hash)
        with pytest.raises(RehashError, match="changed while"):
            hash_version(store, store.catalog.get(digest), never)
