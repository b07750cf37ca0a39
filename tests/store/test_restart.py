"""What a new process makes of the folder that an old one left."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from fakes.store_world import (
    BODIES,
    find_held,
    make_manifest,
    opened,
    origin,
    publish,
    put_partials,
    read_tree,
    tree_of,
)
from modelcache_agent.tiers.errors import StoreRefusedError
from modelcache_agent.tiers.rehash import hash_version, settle
from modelcache_api.manifest import digest_hex


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def digest(root):
    with opened(root) as store:
        return publish(store)


def blob_of(root, path="model.safetensors"):
    manifest = make_manifest(BODIES)
    sha = next(file.sha256 for file in manifest.files if file.path == path)
    return root / "blobs" / "sha256" / sha


def rewrite(path, data) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def verify(store, digest) -> bool:
    hashed = hash_version(store, store.catalog.get(digest), lambda: False)
    return settle(store, hashed)


def test_C14_a_complete_version_is_adopted_without_reading_it(root, digest):
    before = {path: path.stat() for path in root.rglob("*") if path.is_file()}
    with opened(root) as store:
        held = find_held(store, digest)
        assert held.is_verified
        assert held.origins == (origin("v1"),)
    after = {path: path.stat() for path in root.rglob("*") if path.is_file()}
    changed = [path.name for path in before if before[path].st_mtime_ns != after[path].st_mtime_ns]
    assert changed in ([], ["lock"])


def test_links_made_meanwhile_change_ctime_and_do_not_matter(root, digest):
    os.link(blob_of(root), root.parent / "outside")
    with opened(root) as store:
        assert find_held(store, digest).is_verified


def test_C13_a_file_of_right_length_with_zeros_is_found_by_its_hash(root, digest):
    body = BODIES["model.safetensors"]
    rewrite(blob_of(root), body[: len(body) // 2] + bytes(len(body) - len(body) // 2))
    with opened(root) as store:
        assert not find_held(store, digest).is_verified, "not trusted before it is hashed"
        assert not verify(store, digest)
        assert find_held(store, digest) is None
        assert not tree_of(root, digest).exists()
        assert store.survey().quarantined == 1


def test_C13_a_planted_blob_is_hashed_before_it_is_used(root):
    with opened(root) as store:
        body = BODIES["model.safetensors"]
        blob_of(root).write_bytes(bytes(len(body)))
        digest = publish(store)
        assert read_tree(tree_of(root, digest)) == BODIES
        assert store.survey().quarantined == 1


def test_C13_a_tree_without_a_record_is_never_trusted(root):
    with opened(root):
        pass
    tree = tree_of(root, make_manifest(BODIES).digest)
    tree.mkdir()
    (tree / "model.safetensors").write_bytes(bytes(100_000))
    with opened(root) as store:
        assert store.survey().held == ()
        assert not tree.exists()
        assert store.survey().quarantined == 1


def test_a_version_restored_from_a_backup_is_verified_by_hashing(root, digest):
    blob, body = blob_of(root), BODIES["model.safetensors"]
    blob.unlink()
    blob.write_bytes(body)
    with opened(root) as store:
        assert not find_held(store, digest).is_verified
        assert verify(store, digest)
        assert find_held(store, digest).is_verified
        assert read_tree(tree_of(root, digest)) == BODIES
    with opened(root) as store:
        assert find_held(store, digest).is_verified


def test_a_foreign_file_in_a_tree_goes_and_the_tree_is_rebuilt(root, digest):
    tree = tree_of(root, digest)
    (tree / "pytorch_model.bin").write_bytes(b"pickle")
    with opened(root) as store:
        assert find_held(store, digest).is_verified
        assert read_tree(tree) == BODIES
        assert store.survey().quarantined == 1


def test_a_file_replaced_in_a_tree_is_never_served(root, digest):
    target = tree_of(root, digest) / "config.json"
    target.unlink()
    target.write_bytes(b"[]")
    with opened(root):
        assert read_tree(tree_of(root, digest)) == BODIES


def test_a_damaged_record_costs_a_fetch_and_is_kept_for_people(root, digest):
    (root / "records" / f"{digest_hex(digest)}.json").write_text('{"format": 1')
    with opened(root) as store:
        assert store.survey().held == ()
        assert store.survey().quarantined == 2


def test_a_record_that_names_a_path_outside_is_refused(root, digest):
    path = root / "records" / f"{digest_hex(digest)}.json"
    document = json.loads(path.read_bytes())
    document["files"][0]["path"] = "../../outside"
    path.write_text(json.dumps(document))
    with opened(root) as store:
        assert store.survey().held == ()


def test_C15_leftovers_are_reclaimed_and_partials_are_counted(root):
    with opened(root) as store:
        for number in range(20):
            put_partials(root, f"uid-{number}", {"model.safetensors": bytes(50_000)})
        (root / "versions" / f".new-{'a' * 64}").mkdir()
        (root / "versions" / f".new-{'a' * 64}" / "x").write_bytes(b"x")
        (root / "records" / f".{'a' * 64}.json.tmp").write_bytes(b"x")
        (root / ".store.json.tmp").write_bytes(b"x")
    with opened(root) as store:
        survey = store.survey()
        assert len(survey.partials) == 20
        assert all(size >= 50_000 for size in survey.partials.values())
        for uid in survey.partials:
            store.drop_partial(uid)
        left = [path.name for path in root.rglob("*") if path.is_file()]
        assert sorted(left) == ["lock", "store.json"]


def test_what_does_not_belong_into_the_store_is_quarantined_and_siblings_are_not_touched(root):
    sibling = root.parent / "other-data"
    sibling.mkdir()
    (sibling / "precious").write_bytes(b"x")
    with opened(root):
        pass
    (root / "my-notes").write_bytes(b"x")
    (root / "versions" / "handmade").mkdir()
    (root / "partial" / "file").write_bytes(b"x")
    (root / "blobs" / "md5").mkdir()
    (root / "blobs" / "sha256" / "README").write_bytes(b"x")
    (root / "lost+found").mkdir()
    with opened(root) as store:
        assert store.survey().quarantined == 5
        assert (root / "lost+found").exists()
    assert (sibling / "precious").read_bytes() == b"x"


def test_a_link_under_a_folders_name_is_not_followed(root):
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    with opened(root):
        pass
    (root / "partial" / "uid-1").symlink_to(outside)
    with opened(root) as store:
        store.drop_partial("uid-1")
    assert (outside / "precious").read_bytes() == b"x"


def test_a_rebuilt_node_keeps_contents_because_they_are_known_by_digest(root, digest):
    with opened(root, node_uid="node-2") as store:
        assert find_held(store, digest).is_verified
    assert json.loads((root / "store.json").read_bytes())["nodeUid"] == "node-2"


def test_only_our_own_temporary_files_are_removed(root):
    """People's folders and files have such names too."""
    hex_digest = "a" * 64
    ours = [
        ".store.json.tmp",
        ".evicted.json.tmp",
        ".use-probe-17.tmp",
        f"records/.{hex_digest}.json.tmp",
        f"blobs/sha256/.{hex_digest}.1.tmp",
        f"versions/.new-{hex_digest}/file",
    ]
    theirs = [
        ".backup.tmp/precious",
        ".store.json.tmp.d/.tmp",
        "records/.notes.tmp",
        f"records/.{'b' * 64}.json.tmp/precious",
        "blobs/sha256/.backup.tmp",
        "versions/.new-idea/precious",
    ]
    with opened(root):
        pass
    for name in (*ours, *theirs):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    with opened(root) as store:
        assert store.survey().quarantined == len(theirs)
    left = {path.name for path in root.rglob("*") if path.is_file()}
    assert left.isdisjoint(name.rpartition("/")[2] for name in ours)


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        pytest.param(lambda r: (r / "photos").mkdir(), "not empty", id="a folder of other things"),
        pytest.param(lambda r: (r / ".backup.tmp").mkdir(), "not empty", id="a hidden folder"),
        pytest.param(lambda r: (r / ".store.json.tmp").mkdir(), "not empty", id="our name, not us"),
        pytest.param(
            lambda r: (r / "store.json").write_text('{"format": 99, "nodeUid": "x"}'),
            "format 99",
            id="a format of the future",
        ),
        pytest.param(
            lambda r: (r / "store.json").write_text("{"), "damaged", id="a damaged description"
        ),
    ],
)
def test_a_folder_that_is_not_our_store_is_refused_untouched(root, prepare, says):
    root.mkdir()
    prepare(root)
    before = sorted(path.name for path in root.iterdir())
    with pytest.raises(StoreRefusedError, match=says), opened(root):
        pass
    assert sorted(path.name for path in root.iterdir() if path.name != "lock") == before


def test_evictions_are_remembered(root, digest):
    with opened(root) as store:
        assert store.evict(digest, ["v1"])
    with opened(root) as store:
        assert store.survey().evicted == {"v1"}
        store.forget_evictions([])
        assert store.survey().evicted == frozenset()


def test_the_time_of_last_use_survives(root):
    with opened(root, clock=lambda: 1_000_000.0) as store:
        digest = publish(store)
    with opened(root, clock=lambda: 2_000_000.0) as store:
        used = find_held(store, digest).last_used
        with (tree_of(root, digest) / "config.json").open("rb"):
            assert store.find_in_use() == {digest}
    with opened(root) as store:
        assert used != 2_000_000.0
        assert find_held(store, digest).last_used == 2_000_000.0


def test_a_damaged_list_of_evictions_counts_as_empty(root, digest):
    (root / "evicted.json").write_text("[")
    with opened(root) as store:
        assert store.survey().evicted == frozenset()
        assert find_held(store, digest).is_verified


def test_things_of_one_name_have_room_in_quarantine(root):
    for _ in range(3):
        with opened(root):
            pass
        (root / "notes").write_bytes(b"x")
    with opened(root) as store:
        assert store.survey().quarantined == 3


def test_a_mount_point_inside_the_store_is_reported_and_left_alone(root):
    with opened(root):
        pass
    (root / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "none", str(root / "disk")]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        (root / "disk" / "precious").write_bytes(b"x")
        with opened(root) as store:
            assert store.survey().quarantined == 0
        assert (root / "disk" / "precious").read_bytes() == b"x"
    finally:
        subprocess.run(["umount", str(root / "disk")], check=True)
