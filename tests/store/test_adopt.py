"""`modelcache-agent adopt`: which trees are staged, and what is left of those that are not."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from fakes.fetch_world import random_body, safetensors_body
from fakes.store_world import BODIES, in_child, make_manifest, opened
from modelcache_agent.adopt import copying, handover
from modelcache_agent.adopt.handover import only_adopter, stage, take_staged
from modelcache_agent.adopt.program import adopt, main
from modelcache_agent.adopt.tree import AdoptError, find_tree, list_files
from modelcache_agent.fetch.partial import file_stem
from modelcache_agent.tiers.layout import StoreLayout
from modelcache_api.manifest import SourceFile

UID = "0b6f0f9e-1111-4222-8333-444444444444"


@pytest.fixture
def layout(tmp_path):
    with opened(tmp_path / "store") as store:
        yield store.layout


def write_tree(root: Path, bodies: dict[str, bytes]) -> Path:
    for path, body in bodies.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(body)
    return root


def write_hub_cache(root: Path, bodies: dict[str, bytes], revision: str = "a" * 40) -> Path:
    """As huggingface_hub lays out a repository: blobs, and a snapshot of relative links."""
    for path, body in bodies.items():
        blob = root / "blobs" / hashlib.sha256(body).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(body)
        link = root / "snapshots" / revision / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / "main").write_text(revision)
    return root


def staged(layout: StoreLayout, uid: str = UID) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (layout.adopt / uid).iterdir()}


def assert_nothing_is_left(layout: StoreLayout) -> None:
    assert {path.name for path in layout.adopt.iterdir()} <= {"lock"}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(write_tree, id="a plain folder"),
        pytest.param(write_hub_cache, id="C19 a repository of a hub cache"),
        pytest.param(
            lambda root, bodies: write_hub_cache(root, bodies) / "snapshots" / ("a" * 40),
            id="C19 a snapshot of a hub cache",
        ),
    ],
)
def test_every_file_is_staged_as_an_own_copy(layout, tmp_path, make):
    tree = make(tmp_path / "models--org--name", BODIES)
    manifest = adopt(layout.root, tree, UID)
    assert manifest == make_manifest(BODIES)
    found = staged(layout)
    assert {file_stem(path): body for path, body in BODIES.items()}.items() <= found.items()
    for path in (layout.adopt / UID).iterdir():
        assert path.is_file()
        assert not path.is_symlink()
        assert path.stat().st_nlink == 1
    for path in tmp_path.glob("models--org--name/**/model.safetensors"):
        path.write_bytes(b"changed later")
    assert staged(layout) == found


def test_two_names_of_one_blob_are_two_files(layout, tmp_path):
    bodies = {"a.bin": b"same", "b.bin": b"same"}
    adopt(layout.root, write_hub_cache(tmp_path / "repo", bodies), UID)
    assert len(staged(layout)) == 3


def test_books_of_other_programs_are_left_out(layout, tmp_path):
    tree = write_tree(tmp_path / "t", {**BODIES, ".git/objects/x": b"1", ".cache/hub/y": b"2"})
    assert adopt(layout.root, tree, UID) == make_manifest(BODIES)


def _plain(root):
    return write_tree(root, BODIES)


def _with_link(target, name="link.bin"):
    def make(root):
        (_plain(root) / name).symlink_to(target)
        return root

    return make


def _with_name(name):
    def make(root):
        Path(os.fsdecode(os.fsencode(_plain(root)) + b"/" + name)).write_bytes(b"x")
        return root

    return make


def _with_fifo(root):
    os.mkfifo(_plain(root) / "pipe.bin")
    return root


def _with_folder_link(root):
    (_plain(root) / "again").symlink_to(".")
    return root


def _with_two_snapshots(root):
    write_hub_cache(root, BODIES)
    return write_hub_cache(root, BODIES, "b" * 40)


def _hub_with_link_out(root):
    write_hub_cache(root, BODIES)
    (root / "snapshots" / ("a" * 40) / "x.bin").symlink_to("/etc/hostname")
    return root


def _missing(root):
    return root / "missing"


def _a_file(root):
    return _plain(root) / "config.json"


def _empty(root):
    root.mkdir()
    return root


REFUSED = [
    pytest.param(_with_link("/etc/hostname"), "'link.bin' is a link that leads out", id="C19 out"),
    pytest.param(_with_link("../../x"), "'link.bin' is a link to nothing", id="C19 dangling"),
    pytest.param(_with_link("link.bin"), "'link.bin' cannot be read", id="a link to itself"),
    pytest.param(_with_link("/proc/self/mem"), "leads out", id="a link to a special file"),
    pytest.param(_hub_with_link_out, "'x.bin' is a link that leads out", id="C19 out of a cache"),
    pytest.param(_with_folder_link, "'again' is a link to a folder", id="a link to a folder"),
    pytest.param(_with_fifo, "'pipe.bin' is no regular file", id="a named pipe"),
    pytest.param(_with_name(b"a\nb"), "control character", id="a name with a newline"),
    pytest.param(_with_name(b"a\\b"), "backslash", id="a name with a backslash"),
    pytest.param(_with_name(b"a\xff"), "UTF-8", id="a name that is not UTF-8"),
    pytest.param(_with_two_snapshots, "holds 2 snapshots", id="two snapshots"),
    pytest.param(_missing, "cannot be read", id="no such path"),
    pytest.param(_a_file, "is no folder", id="a file"),
    pytest.param(_empty, "holds no files", id="an empty folder"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_a_tree_that_cannot_be_kept_is_refused_with_the_name(layout, tmp_path, make, words, capsys):
    tree = make(tmp_path / "t")
    status = main([f"--store={layout.root}", f"--path={tree}", f"--version-uid={UID}"])
    assert status == 1
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
    assert_nothing_is_left(layout)


def test_the_digest_is_told(layout, tmp_path, capsys):
    tree = _plain(tmp_path / "t")
    assert main([f"--store={layout.root}", f"--path={tree}", f"--version-uid={UID}"]) == 0
    assert make_manifest(BODIES).digest in capsys.readouterr().out


@pytest.mark.parametrize(
    ("store", "path", "uid", "words"),
    [
        ("store", "t", "../x", "no uid"),
        ("t", "t", UID, "is no store"),
        ("store", "store/pods", UID, "lie in each other"),
        ("store", ".", UID, "lie in each other"),
    ],
)
def test_arguments_without_a_meaning_are_refused(layout, tmp_path, store, path, uid, words):
    _plain(tmp_path / "t")
    with pytest.raises(AdoptError, match=words):
        adopt(tmp_path / store, tmp_path / path, uid)
    assert_nothing_is_left(layout)


def test_a_waiting_tree_is_not_replaced(layout, tmp_path):
    tree = _plain(tmp_path / "t")
    adopt(layout.root, tree, UID)
    with pytest.raises(AdoptError, match="waits already"):
        adopt(layout.root, tree, UID)


def test_one_adoption_at_a_time(layout, tmp_path):
    with only_adopter(layout), pytest.raises(AdoptError, match="another adoption"):
        adopt(layout.root, _plain(tmp_path / "t"), UID)


def test_a_file_that_was_swapped_for_a_link_is_refused(layout, tmp_path):
    tree = write_tree(tmp_path / "t", {"sub/w.bin": b"weights"})
    files = list_files(find_tree(tree))
    (tree / "sub").rename(tmp_path / "elsewhere")
    (tree / "sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AdoptError, match="was replaced"):
        stage(layout, UID, files)
    assert_nothing_is_left(layout)


@pytest.mark.parametrize("change", ["grow", "cut", "touch", "replace"])
def test_a_file_that_changes_while_it_is_read_is_refused(layout, tmp_path, change, monkeypatch):
    tree = write_tree(tmp_path / "t", {"w.bin": random_body(100_000)})
    file = tree / "w.bin"

    def change_it(_source, _own):
        match change:
            case "grow":
                with file.open("ab") as writer:
                    writer.write(b"more")
            case "cut":
                os.truncate(file, 10)
            case "touch":
                os.utime(file, (1, 1))
            case "replace":
                file.unlink()
                file.write_bytes(random_body(100_000, 2))
                os.utime(file, (1, 1))
        return False

    monkeypatch.setattr(copying.take_copy, "__defaults__", (change_it,))
    if change == "replace":  # the file that was opened is still whole
        assert adopt(layout.root, tree, UID).size_bytes == 100_000
        return
    with pytest.raises(AdoptError, match=r"'w.bin' changed while it was read"):
        adopt(layout.root, tree, UID)
    assert_nothing_is_left(layout)


def test_a_reflink_is_taken_where_there_is_one(layout, tmp_path, monkeypatch):
    """The file system of the tests may have none; this one shares blocks by copying them."""
    asked = []

    def share(source, own):
        asked.append(source)
        os.sendfile(own, source, 0, os.fstat(source).st_size)
        return True

    monkeypatch.setattr(copying.take_copy, "__defaults__", (share,))
    assert adopt(layout.root, _plain(tmp_path / "t"), UID) == make_manifest(BODIES)
    assert len(asked) == len(BODIES)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_C16_too_little_room_is_told_with_the_numbers(tmp_path):
    root = tmp_path / "small"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", root], check=True)
    try:
        with opened(root) as store:
            tree = write_tree(tmp_path / "t", {"a.bin": bytes(600_000), "b.bin": bytes(900_000)})
            with pytest.raises(AdoptError, match=r"No space left.*needs 1.4Mi.*are free"):
                adopt(root, tree, UID)
            assert_nothing_is_left(store.layout)
    finally:
        subprocess.run(["umount", root], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody who may not read")
def test_an_unreadable_file_is_named():
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        base.chmod(0o755)
        tree = write_tree(base / "t", {"a.bin": b"x", "secret.bin": b"x"})
        (tree / "secret.bin").chmod(0)
        (base / "store").mkdir()
        os.chown(base / "store", 65534, 65534)

        def work():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with opened(base / "store") as store:
                with pytest.raises(AdoptError, match=r"'secret.bin' cannot be read: Permission"):
                    adopt(base / "store", tree, UID)
                assert_nothing_is_left(store.layout)

        assert in_child(work) == 0


def test_a_kill_half_way_hands_nothing_over_and_the_next_one_cleans_up(tmp_path):
    root = tmp_path / "store"
    tree = write_tree(tmp_path / "t", BODIES)
    calls = []

    def die_at_the_third(source, own):
        calls.append(source)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return copying.clone(source, own)

    def work():
        copying.take_copy.__defaults__ = (die_at_the_third,)
        adopt(root, tree, UID)

    with opened(root) as store:
        assert in_child(work) == -signal.SIGKILL
        assert [name for name in store.survey().adopted if name != f".new-{UID}"] == []
    with opened(root) as store:  # a restart of the agent leaves it to the next adoption
        assert not store.survey().quarantined
        assert adopt(root, tree, UID) == make_manifest(BODIES)
        assert set(store.survey().adopted) == {UID}


def test_one_that_is_told_to_stop_leaves_nothing(tmp_path):
    root = tmp_path / "store"
    tree = write_tree(tmp_path / "t", BODIES)

    def work():
        def stop(_source, _own):
            os.kill(os.getpid(), signal.SIGTERM)

        copying.take_copy.__defaults__ = (stop,)
        try:
            main([f"--store={root}", f"--path={tree}", f"--version-uid={UID}"])
        except SystemExit as end:
            os._exit(end.code)

    with opened(root) as store:
        assert in_child(work) == 128 + signal.SIGTERM
        assert_nothing_is_left(store.layout)


def sources(bodies):
    return [SourceFile(path, len(body), '"v"') for path, body in bodies.items()]


@pytest.mark.parametrize("kill_at", range(1, 6))
def test_taking_may_be_killed_at_any_rename(tmp_path, monkeypatch, kill_at):
    bodies = {f"{n}.bin": random_body(1000, n) for n in range(4)}
    root = tmp_path / "store"
    with opened(root) as store:
        adopt(root, write_tree(tmp_path / "t", bodies), UID)
        layout, files = store.layout, sources(bodies)

        def work():
            calls = []
            move, remove = Path.rename, handover.remove_anything

            def rename(self, target):
                calls.append(target)
                if len(calls) == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return move(self, target)

            def remove_killed(path):
                if kill_at == len(bodies) + 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                remove(path)

            Path.rename, handover.remove_anything = rename, remove_killed
            take_staged(layout, UID, "sha256:s", files)

        assert in_child(work) == -signal.SIGKILL
    with opened(root) as store:
        take_staged(store.layout, UID, "sha256:s", files)
        partial = store.layout.partial / UID
        for path, body in bodies.items():
            stem = partial / file_stem(path)
            assert stem.with_suffix(".part").read_bytes() == body
            assert stem.with_suffix(".journal").read_bytes().count(b"\n") == 2
        assert not store.survey().adopted


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda folder: (folder / "manifest").unlink(), id="no manifest"),
        pytest.param(lambda folder: (folder / "manifest").write_bytes(b"x"), id="a damaged one"),
    ],
)
def test_an_incomplete_tree_is_dropped(layout, tmp_path, spoil):
    adopt(layout.root, _plain(tmp_path / "t"), UID)
    spoil(layout.adopt / UID)
    assert take_staged(layout, UID, "sha256:s", sources(BODIES)) == 0
    assert not (layout.adopt / UID).exists()


def test_only_files_of_the_source_with_its_size_are_taken(layout, tmp_path):
    adopt(layout.root, _plain(tmp_path / "t"), UID)
    files = sources({"config.json": BODIES["config.json"], "tokenizer.json": b"other size"})
    assert take_staged(layout, UID, "sha256:s", files) == 1
    assert not (layout.adopt / UID).exists()


def test_what_is_no_adopted_tree_goes_to_quarantine_at_the_next_start(tmp_path):
    root = tmp_path / "store"
    with opened(root) as store:
        (store.layout.adopt / "rubbish").write_text("x")
        (store.layout.adopt / "evil").symlink_to("/etc")
        stage(store.layout, UID, list_files(find_tree(_plain(tmp_path / "t"))))
    with opened(root) as store:
        assert store.survey().quarantined == 2
        assert set(store.survey().adopted) == {UID}


def test_weights_of_many_pieces_have_a_hash_for_each(layout, tmp_path):
    bodies = {"model.safetensors": safetensors_body((8 << 20) + 5)}
    manifest = adopt(layout.root, write_tree(tmp_path / "t", bodies), UID)
    assert manifest == make_manifest(bodies)
    assert len(manifest.files[0].pieces) == 2
