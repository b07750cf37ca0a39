"""Two trees of links: complete or not there, whatever happens meanwhile."""

from __future__ import annotations

import errno
import json
import os
import stat

import pytest

from fakes.played_kubelet import Pod
from fakes.store_world import BODIES, in_child, opened, publish, read_tree
from fakes.volume_world import PlayedPods
from modelcache_agent.decide.hub_layout import make_hub_layout
from modelcache_agent.decide.volumes import Filling
from modelcache_agent.volume.fill import fill

POD = Pod()
STEPS = ("bind", "hub", "model", "show", "shown")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def filling_of(digest, model="org/name") -> Filling:
    return Filling("v1", digest, make_hub_layout(model, digest), "m-v1")


def folder_in(store, tmp_path):
    return PlayedPods(store.layout.root, tmp_path / "kubelet").add(POD).folder


def snapshot_of(folder):
    hub = folder.hub / "models--org--name"
    return hub / "snapshots" / (hub / "refs" / "main").read_text()


def test_the_model_is_there_by_its_files_and_as_the_hub_keeps_it(root, tmp_path):
    with opened(root) as store:
        digest, folder = publish(store), folder_in(store, tmp_path)
        fill(folder, filling_of(digest), store.catalog.get(digest), store.blobs)
    assert read_tree(folder.model) == read_tree(snapshot_of(folder)) == BODIES
    assert snapshot_of(folder).name == digest.removeprefix("sha256:")[:40]
    assert json.loads(folder.bound.read_bytes()) == {"uid": "v1", "digest": digest, "name": "m-v1"}
    assert not folder.building.exists()
    for path in folder.content.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o755 if path.is_dir() else 0o444), f"{path} for every user to read"


def test_a_model_whose_id_the_hub_would_not_accept_is_there_by_its_files(root, tmp_path):
    with opened(root) as store:
        digest, folder = publish(store), folder_in(store, tmp_path)
        fill(folder, filling_of(digest, "a/b/c"), store.catalog.get(digest), store.blobs)
    assert read_tree(folder.model) == BODIES
    assert not folder.hub.exists()


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_shows_all_or_nothing_and_can_be_repeated(root, tmp_path, step):
    with opened(root) as store:
        digest, folder = publish(store), folder_in(store, tmp_path)
        stored, filling = store.catalog.get(digest), filling_of(digest)

        def die(name: str) -> None:
            if name == step:
                os._exit(9)

        assert in_child(lambda: fill(folder, filling, stored, store.blobs, die)) == 9
        shown = {path.name for path in folder.content.iterdir()} - {"status.json"}
        if "model" in shown:
            assert read_tree(folder.model) == read_tree(snapshot_of(folder)) == BODIES
        else:
            assert step != "shown"
            fill(folder, filling, stored, store.blobs)
        assert read_tree(folder.model) == read_tree(snapshot_of(folder)) == BODIES


def test_a_hub_left_by_another_contents_attempt_is_not_kept(root, tmp_path):
    with opened(root) as store:
        first = publish(store)
        second = publish(store, "v2", BODIES | {"config.json": b'{"v": 2}'})
        folder = folder_in(store, tmp_path)

        def die(name: str) -> None:
            if name == "model":
                os._exit(9)

        stored = store.catalog.get(first)
        assert in_child(lambda: fill(folder, filling_of(first), stored, store.blobs, die)) == 9
        fill(folder, filling_of(second), store.catalog.get(second), store.blobs)
        assert read_tree(snapshot_of(folder)) == read_tree(folder.model)
        assert (folder.model / "config.json").read_bytes() == b'{"v": 2}'
        assert len(list(snapshot_of(folder).parent.iterdir())) == 1


def test_a_volume_taken_away_while_links_are_made_is_not_made_again(root, tmp_path):
    pods = PlayedPods(root, tmp_path / "kubelet")
    with opened(root) as store:
        digest, folder = publish(store), folder_in(store, tmp_path)

        def vanish(name: str) -> None:
            if name == "show":
                pods.remove(POD)

        with pytest.raises(FileNotFoundError):
            fill(folder, filling_of(digest), store.catalog.get(digest), store.blobs, vanish)
        left = {path.name for path in store.layout.pods.iterdir()}
        assert left == {".changed"}


def test_a_folder_of_the_model_is_never_made_below_a_volume_that_is_gone(root, tmp_path):
    pods = PlayedPods(root, tmp_path / "kubelet")
    with opened(root) as store:
        digest, folder = publish(store), folder_in(store, tmp_path)
        link = store.blobs.link

        class Vanishing:
            folder = store.blobs.folder

            def link(self, record, target):
                if folder.root.exists():
                    pods.remove(POD)
                return link(record, target)

        with pytest.raises(FileNotFoundError):
            fill(folder, filling_of(digest), store.catalog.get(digest), Vanishing())
        assert {path.name for path in store.layout.pods.iterdir()} == {".changed"}


def test_at_the_file_systems_limit_of_links_a_second_blob_is_shown(root, tmp_path, monkeypatch):
    with opened(root) as store:
        digest, folder = publish(store), folder_in(store, tmp_path)
        whole_link = os.link

        def limited(source, target):
            if source.stat().st_nlink >= 3:
                raise OSError(errno.EMLINK, "Too many links")
            whole_link(source, target)

        monkeypatch.setattr(os, "link", limited)
        fill(folder, filling_of(digest), store.catalog.get(digest), store.blobs)
        assert read_tree(folder.model) == read_tree(snapshot_of(folder)) == BODIES
