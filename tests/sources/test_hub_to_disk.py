"""From a repository of the hub to a node's disk: the operator's door, a whole agent, its engine.

Only the hub and its CDN are stand-ins.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import urllib.error
import urllib.request
from collections import Counter

import pytest

from fakes.fetch_world import content_of, safetensors_body
from fakes.hub_door import AGENT_TOKEN
from fakes.hub_http import Told
from fakes.hub_node import MODEL, PRIVATE, WEIGHTS
from fakes.store_world import opened, read_tree
from modelcache_agent.decide.hub_layout import make_hub_layout
from modelcache_agent.decide.possession import SPAN_BYTES, SPANS
from modelcache_agent.decide.volumes import Filling
from modelcache_agent.volume.fill import fill
from modelcache_agent.volume.folders import VolumeFolder
from modelcache_api.manifest import make_content_manifest

MIB = 1 << 20


async def test_a_public_repository_reaches_the_disk(node):
    repository = node.hub.add("org/name", {**MODEL, "pytorch_model.bin": b"a copy"})
    await node.want(node.version())
    async with node.started():
        assert await node.holds() == MODEL
    content = node.door.manifests.contents["v1"]
    assert content == make_content_manifest(content_of(*item) for item in MODEL.items())
    assert node.cdn_bytes == len(WEIGHTS)
    # The agent reads what lies in git at the hub, under the commit.
    read = node.hub.asked("GET", "/resolve/")
    assert {one.path.split("/")[4] for one in read} == {repository.references["main"]}
    assert {one.headers["user-agent"] for one in read} == {"modelcache-agent"}


async def test_a_private_repository_reaches_the_disk_and_the_token_does_not_leave(node):
    node.hub.add("org/name", MODEL, **PRIVATE)
    await node.want(node.version(secret="hub"))
    async with node.started():
        assert await node.holds() == MODEL
    assert node.door.answers.count(("/v1/files", 206)) == 2, "the operator handed two files over"
    told = Counter(one.headers.get("authorization") for one in node.hub.requests)
    assert set(told) == {"Bearer hf_example"}
    assert {one.headers.get("authorization") for one in node.hub.cdn.requests} == {None}
    for server in (node.hub, node.hub.cdn):
        assert not any(AGENT_TOKEN in str(one.headers) for one in server.requests)
    left = b"".join(path.read_bytes() for path in node.bench.root.rglob("*.json"))
    assert b"hf_example" not in left


async def test_only_the_nodes_agent_is_handed_files(node):
    node.hub.add("org/name", MODEL, **PRIVATE)
    await node.want(node.version(secret="hub"))
    trust = ssl.create_default_context(cadata=node.door.authority.pem.decode())

    def ask(path, token=AGENT_TOKEN):
        request = urllib.request.Request(f"{node.door.url}{path}")
        request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, context=trust) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("Retry-After")

    async def answer(*what):
        return await asyncio.to_thread(ask, *what)

    assert await answer("/v1/files/v1/0") == (200, b"{ }")
    assert (await answer("/v1/files/v1/0", "someone else"))[0] == 401
    assert await answer("/v1/files/v2/0") == (503, "6"), "another replica may know it"
    assert (await answer("/v1/files/v1/9"))[0] == 403
    assert (await answer("/v1/files/v1/x"))[0] == 404
    assert (await answer("/v1/files/v1/2"))[0] == 503, "33 MiB are not handed over"
    node.hub.override = lambda _: Told(429, headers={"Retry-After": "30"})
    assert await answer("/v1/files/v1/1") == (503, "31")


async def test_C09_signatures_that_end_half_way_are_renewed_and_nothing_is_read_twice(node):
    node.hub.add("org/name", MODEL)
    cdn, seen = node.hub.cdn, []

    def end_after_two(asked):
        seen.append(asked)
        if len(seen) == 2:
            node.door.sources._addresses._found.clear()
            cdn.end_all()

    cdn.override = end_after_two
    await node.want(node.version())
    async with node.started("--streams=1"):
        assert (await node.holds())["model.safetensors"] == WEIGHTS
    assert node.cdn_bytes == len(WEIGHTS) + len(_denied())
    assert len(node.hub.asked("HEAD")) == 3, "one look, one signature, one renewed"


def _denied() -> bytes:
    return b"<Error><Code>AccessDenied</Code></Error>"


async def test_C12_a_file_replaced_on_the_branch_meanwhile_is_not_seen(node):
    repository = node.hub.add("org/name", MODEL)
    other = {**MODEL, "model.safetensors": safetensors_body(33 * MIB, 7), "config.json": b"[]"}
    moved = []

    def move(_):
        if not moved:
            moved.append(repository.commit(other))

    await node.want(node.version())
    node.hub.override = node.hub.cdn.override = move
    async with node.started("--streams=1"):
        assert await node.holds() == MODEL
    assert moved
    assert repository.references["main"] == moved[0]


async def test_C23_a_pin_that_the_branch_has_left_is_tried_once(node):
    repository = node.hub.add("org/name", MODEL)
    pinned = make_content_manifest(content_of(*item) for item in MODEL.items()).digest
    newer = {**MODEL, "model.safetensors": safetensors_body(33 * MIB, 7)}
    repository.commit(newer)
    await node.want(node.version(digest=pinned))
    async with node.started():
        await node.bench.until_state("v1", "Failed", "DigestMismatch")
        message = node.bench.cluster.entry("v1").message
    assert pinned in message
    assert node.cdn_bytes == len(WEIGHTS), "not again and again"
    assert "v1" not in node.door.manifests.contents


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b"version https://git-lfs.github.com/spec/v1\n", "LFS pointer", id="pointer"),
        pytest.param(b"<!DOCTYPE html><html>Sign in</html>", "HTML", id="a page"),
        pytest.param(WEIGHTS[: 9 * MIB], "safetensors", id="a cut file"),
        pytest.param(b"../../blobs/0a0a", "safetensors", id="C19 the text of a link"),
    ],
)
async def test_C20_something_else_under_the_weights_name(node, body, says):
    """As it was committed: the repository itself says that these are the bytes."""
    repository = node.hub.add("org/name", {"config.json": b"{}"})
    repository.commit(
        {"config.json": b"{}", "model.safetensors": body}, plain={"model.safetensors"}
    )
    await node.want(node.version())
    async with node.started():
        await node.bench.until_state("v1", "Failed", "NotAModel")
        message = node.bench.cluster.entry("v1").message
    assert says in message
    assert "model.safetensors" in message


async def test_C20_a_page_of_the_cdn_in_place_of_weights(node):
    node.hub.add("org/name", MODEL)
    node.hub.cdn.override = lambda _: Told(200, b"<!DOCTYPE html><html>Sign in</html>")
    await node.want(node.version())
    async with node.started():
        await node.bench.until_state("v1", "Failed", "NotAModel")
        assert "HTML" in node.bench.cluster.entry("v1").message


async def test_C22_damage_on_the_way_is_found_by_the_hubs_own_sha256(node):
    """By the very first node: nobody has proposed anything yet."""
    node.hub.add("org/name", MODEL)
    sha256 = hashlib.sha256(WEIGHTS).hexdigest()
    damaged = bytearray(WEIGHTS)
    damaged[20 * MIB] ^= 0xFF
    node.hub.cdn.bodies[sha256] = bytes(damaged)
    await node.want(node.version())
    async with node.started():
        await node.bench.until_state("v1", "Failed", "DigestMismatch")
        assert sha256 in node.bench.cluster.entry("v1").message
    assert "v1" not in node.door.manifests.contents


async def test_who_states_the_sha256_of_weights_that_are_here_and_has_others_gets_none(node):
    node.hub.add("org/name", MODEL)
    await node.want(node.version())
    async with node.started():
        await node.holds()
        labels = node.bench.cluster.labels
        sha256 = hashlib.sha256(WEIGHTS).hexdigest()
        node.hub.cdn.bodies[sha256] = safetensors_body(len(WEIGHTS), seed=9)
        await node.want(node.version("v2"))
        await node.bench.until_state("v2", "Failed", "DigestMismatch")
        assert node.bench.cluster.labels == labels
    assert "v2" not in node.door.manifests.contents, "nothing was proposed, nothing adopted"


async def test_weights_that_a_later_commit_keeps_are_not_read_again(node):
    repository = node.hub.add("org/name", MODEL)
    await node.want(node.version())
    async with node.started():
        await node.holds()
        newer = {**MODEL, "config.json": b'{"new": 1}'}
        repository.commit(newer)
        read = node.cdn_bytes
        await node.want(node.version("v2"))
        assert await node.holds("v2") == newer
        assert read < node.cdn_bytes <= read + SPANS * SPAN_BYTES, "it shows that it has them"
    first, second = (node.door.manifests.contents[uid].files for uid in ("v1", "v2"))
    assert first[-1] == second[-1], "with the pieces that the first read has proved"
    assert first[-1].pieces


async def test_C19_the_snapshot_bears_the_commits_name_and_holds_no_links(node):
    repository = node.hub.add("org/name", MODEL)
    await node.want(node.version())
    async with node.started():
        await node.holds()
    commit = repository.references["main"]
    digest = node.door.manifests.contents["v1"].digest
    folder = VolumeFolder(node.bench.root / "pods" / "pod-1" / "models")
    folder.content.mkdir(parents=True)
    with opened(node.bench.root) as store:
        filling = Filling("v1", digest, make_hub_layout("org/name", digest, commit))
        fill(folder, filling, store.catalog.get(digest), store.blobs)
    shown = folder.hub / "models--org--name"
    assert (shown / "refs" / "main").read_text() == commit
    assert read_tree(shown / "snapshots" / commit) == MODEL
    assert not any(path.is_symlink() for path in shown.rglob("*"))
