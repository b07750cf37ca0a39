"""The folder that `get` fills: a model is shown as a whole, whatever was interrupted."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from fakes.get_world import HIDDEN
from fakes.store_world import BODIES, publish
from modelcache_agent.get.target import Target
from modelcache_agent.tiers.errors import StoreInUseError
from modelcache_api.manifest import ContentDigest

SECOND = {"model.safetensors": b"other weights", "config.json": b"{}"}


@contextmanager
def filling(root):
    target = Target(root)
    try:
        yield target
    finally:
        target.close()


def read(root):
    return {
        str(path.relative_to(root / "model")): path.read_bytes()
        for path in (root / "model").rglob("*")
        if path.is_file()
    }


@pytest.fixture
def root(tmp_path):
    with filling(tmp_path) as target:
        target.show(ContentDigest(publish(target.store)), "modelversion/m1")
    return tmp_path


def leave_between_the_renames(root):
    building = root / HIDDEN / "building"
    building.mkdir()
    (root / "model").rename(building / "before")


def leave_half_a_tree(root):
    building = root / HIDDEN / "building" / "model"
    building.mkdir(parents=True)
    (building / "config.json").write_bytes(b"half")


@pytest.mark.parametrize("crash", [leave_between_the_renames, leave_half_a_tree])
def test_C13_what_a_crash_left_is_finished_by_the_next_run(root, crash):
    crash(root)
    with filling(root) as target:
        (stored,) = target.store.catalog
        assert stored.is_verified
        target.show(stored.digest, "modelversion/m1")
    assert read(root) == BODIES
    assert not (root / HIDDEN / "building").exists()


def test_a_second_content_follows_the_first_and_nothing_of_that_stays(root):
    with filling(root) as target:
        target.show(ContentDigest(publish(target.store, "v2", SECOND)), "modelversion/m2")
        (stored,) = target.store.catalog
        assert target.find_shown("modelversion/m1") is None
        assert target.find_shown("modelversion/m2") == stored
    assert read(root) == SECOND


def test_what_is_shown_counts_while_nobody_touched_it(root):
    with filling(root) as target:
        assert target.find_shown("modelversion/m1") is not None
        assert target.find_shown("modelcache/m1") is None
        (root / "model" / "config.json").unlink()
        assert target.find_shown("modelversion/m1") is None


def test_a_note_that_nobody_can_read_is_no_note(root):
    (root / HIDDEN / "got.json").write_bytes(b"[1")
    with filling(root) as target:
        assert target.find_shown("modelversion/m1") is None


def test_C17_one_process_fills_a_folder_at_a_time(root):
    with filling(root), pytest.raises(StoreInUseError):
        Target(root)
