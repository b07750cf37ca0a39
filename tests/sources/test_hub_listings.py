"""What a revision of a repository becomes. The hub's real client against a stand-in for the hub."""

from __future__ import annotations

import hashlib

import pytest

from fakes.hub_http import Told
from fakes.source_world import fail_to_resolve as fail
from fakes.source_world import make_version
from modelcache_api.manifest import pack_source as pack
from modelcache_api.manifest import unpack_source

WEIGHTS = b"weights " * 1000
MODEL = {"config.json": b"{}", "model.safetensors": WEIGHTS, "1_Pooling/config.json": b"{ }"}


def version(hub, uri="hf://org/name", **more):
    return make_version(uri, endpoint=hub.url, **more)


async def test_a_branch_becomes_a_commit_and_every_later_question_names_it(hub, hub_sources):
    repository = hub.add("org/name", MODEL)
    found = await hub_sources.resolve(version(hub))
    commit = repository.references["main"]
    assert found.revision == commit
    assert [file.path for file in found.files] == sorted(MODEL)
    assert [one.path for one in hub.requests] == [
        "/api/models/org/name/revision/main",
        f"/api/models/org/name/tree/{commit}",
        f"/org/name/resolve/{commit}/model.safetensors",
    ]
    assert hub.requests[-1].method == "HEAD"


async def test_C05_large_files_have_the_hubs_sha256_and_all_have_their_blobs_name(hub, hub_sources):
    blobs = hub.add("org/name", MODEL).commits.popitem()[1]
    hub.repositories["org/name"].commit(MODEL)
    found = {file.path: file for file in (await hub_sources.resolve(version(hub))).files}
    large = found["model.safetensors"]
    assert large.sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert large.size_bytes == len(WEIGHTS), "not that of the pointer"
    assert found["config.json"].sha256 is None, "nothing is invented"
    assert {path: file.version_id for path, file in found.items()} == {
        path: blob.oid for path, blob in blobs.items()
    }
    assert all(file.etag is None for file in found.values()), "the CDN's is another, see signing"


async def test_the_manifest_is_kept_with_commit_and_checksums(hub, hub_sources):
    hub.add("org/name", MODEL)
    found = await hub_sources.resolve(version(hub))
    assert unpack_source(pack(found)) == found


async def test_C01_C02_folders_are_no_files_and_paths_stay_as_they_are(hub, hub_sources):
    files = {"exp/model.pkl": b"p", "exp/model/extra.bin": b"x", "exp/model/.gitkeep": b""}
    hub.add("org/name", files)
    found = await hub_sources.resolve(version(hub))
    assert {file.path: file.size_bytes for file in found.files} == {
        path: len(body) for path, body in files.items()
    }
    assert found.size_bytes == 2


@pytest.mark.parametrize("page_files", [1, 3, 4, 1000])
async def test_C03_all_pages_are_read(hub, hub_sources, page_files):
    hub.page_files = page_files
    hub.add("org/name", {f"a/{number:04}.txt": b"x" for number in range(10)})
    found = await hub_sources.resolve(version(hub))
    assert [file.path for file in found.files] == [f"a/{number:04}.txt" for number in range(10)]
    assert len(hub.asked(part="/tree/")) == -(-11 // page_files), "the folder is an entry, too"


async def test_C03_a_page_that_fails_fails_the_listing(hub, hub_sources):
    hub.page_files = 2
    hub.add("org/name", {f"{number}.txt": b"x" for number in range(5)})
    hub.override = lambda asked: Told(500) if asked.query.get("cursor") == "4" else None
    assert (await fail(hub_sources, version(hub))).reason == "EndpointUnreachable"
    hub.override = lambda _: None
    assert len((await hub_sources.resolve(version(hub))).files) == 5


@pytest.mark.parametrize(
    ("uri", "branch"),
    [
        pytest.param("hf://org/name@v1.0", "v1.0", id="a tag"),
        pytest.param("hf://org/name@refs/pr/1", "refs/pr/1", id="a revision with slashes"),
    ],
)
async def test_revisions(hub, hub_sources, uri, branch):
    repository = hub.add("org/name", MODEL)
    wanted = repository.commit({"config.json": b"other"}, branch)
    assert (await hub_sources.resolve(version(hub, uri))).revision == wanted


async def test_a_commit_is_its_own_revision(hub, hub_sources):
    repository = hub.add("org/name", MODEL)
    first = repository.references["main"]
    repository.commit({"config.json": b"newer"})
    assert (await hub_sources.resolve(version(hub, f"hf://org/name@{first}"))).revision == first


async def test_a_name_of_one_part_that_was_renamed_is_followed(hub, hub_sources):
    hub.add("openai-community/gpt2", MODEL)
    hub.renamed["gpt2"] = "openai-community/gpt2"
    found = await hub_sources.resolve(version(hub, "hf://gpt2"))
    assert len(found.files) == 3
    page = await hub_sources.sign(version(hub, "hf://gpt2"), found.files, found.revision)
    assert page.files[2].url.startswith(hub.cdn.url)


async def test_include_and_exclude_are_those_of_every_source(hub, hub_sources):
    hub.add("org/name", {**MODEL, "notes/a.txt": b"a", "b.txt": b"b"})
    only = await hub_sources.resolve(version(hub, include=["*.txt"], exclude=["notes/**"]))
    assert [file.path for file in only.files] == ["b.txt"]
    found = await fail(hub_sources, version(hub, include=["*.onnx"]))
    assert found.reason == "SourceNotFound"
    assert "none of the 5 files" in found.message


BOTH = {"model.safetensors": b"s", "pytorch_model.bin": b"p", "onnx/model.onnx": b"o", "a.md": b"a"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, ["a.md", "model.safetensors"], id="copies are left out"),
        pytest.param({"include": ["**"]}, sorted(BOTH), id="an include takes what it says"),
        pytest.param(
            {"exclude": ["*.safetensors"]},
            ["a.md", "onnx/model.onnx", "pytorch_model.bin"],
            id="without safetensors nothing is a copy",
        ),
        pytest.param({"exclude": ["*.md"]}, ["model.safetensors"], id="an exclude adds to it"),
    ],
)
async def test_copies_in_other_formats(hub, hub_sources, more, expected):
    hub.add("org/name", BOTH)
    found = await hub_sources.resolve(version(hub, **more))
    assert [file.path for file in found.files] == expected


async def test_C23_a_branch_that_moves_on_does_not_move_what_was_resolved(hub, hub_sources):
    repository = hub.add("org/name", MODEL)
    first = await hub_sources.resolve(version(hub))
    repository.commit({**MODEL, "config.json": b'{"new": 1}'})
    again = await hub_sources.resolve(version(hub), first.revision)
    assert again == first, "a list that was lost is restored from the commit"
    assert (await hub_sources.resolve(version(hub))).revision != first.revision


async def test_a_commit_that_changes_nothing_of_ours_is_the_same_source(hub, hub_sources):
    repository = hub.add("org/name", {**MODEL, "README.md": b"1"})
    first = await hub_sources.resolve(version(hub, exclude=["README.md"]))
    repository.commit({**MODEL, "README.md": b"2"})
    second = await hub_sources.resolve(version(hub, exclude=["README.md"]))
    assert first.revision != second.revision
    assert first.digest == second.digest


async def test_a_mirror_below_a_path(hub, hub_sources):
    hub.add("org/name", MODEL)
    hub.prefix = "/mirror/hub"
    mirrored = make_version("hf://org/name", endpoint=f"{hub.url}/mirror/hub/")
    found = await hub_sources.resolve(mirrored)
    page = await hub_sources.sign(mirrored, found.files, found.revision)
    assert page.files[0].url.startswith(f"{hub.url}/mirror/hub/org/name/resolve/{found.revision}/")


async def test_a_mirror_that_passes_on_the_public_hubs_next_page_is_asked_for_it(hub, hub_sources):
    from huggingface_hub import constants

    hub.page_files = 2
    hub.next_page_host = constants.HUGGINGFACE_CO_URL_HOME.rstrip("/")
    hub.add("org/name", {f"{number}.txt": b"x" for number in range(5)})
    assert len((await hub_sources.resolve(version(hub))).files) == 5


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        pytest.param({"a": b"1", "a/b": b"2"}, "UnsafeKey", id="a file that is a folder"),
        pytest.param({"../x": b"1"}, "UnsafeKey", id="a step back"),
        pytest.param({"a\\b": b"1"}, "UnsafeKey", id="a backslash"),
        pytest.param({f"{n}": b"" for n in range(10_001)}, "TooManyFiles", id="too many"),
        pytest.param({}, "SourceNotFound", id="none"),
    ],
)
async def test_a_list_that_cannot_be_taken(hub, hub_sources, files, reason):
    hub.add("org/name", files)
    found = await fail(hub_sources, version(hub))
    assert (found.reason, found.retry_after_seconds) == (reason, None)


async def test_an_unsafe_file_that_is_left_out_does_no_harm(hub, hub_sources):
    hub.add("org/name", {**MODEL, "a\\b": b"1"})
    assert len((await hub_sources.resolve(version(hub, exclude=["a*"]))).files) == 3
