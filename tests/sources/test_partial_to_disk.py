"""Only some tensors of a model: from each kind of source to a node's disk, by a whole agent."""

from __future__ import annotations

import json
import os

import pytest
import safetensors

from fakes.agent_bench import Bench
from fakes.fault_proxy import Fault
from fakes.hub_door import HubDoor
from fakes.layered_model import INDEX, MIB, SHARDS, model_files, shard_body, tensor_bytes
from fakes.played_cluster import PlayedCluster
from fakes.s3_node import s3_node
from fakes.source_world import make_version
from fakes.store_world import read_tree, tree_of
from modelcache_api.manifest import PIECE_BYTES
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.partial.loading import PartLoader

MODEL = model_files()
LOAD = ["layers.1.*", "embed.weight"]
FIRST, SECOND, THIRD = SHARDS
TAKEN = 29 * MIB  # and a bias
# The list, the index, and of each shard the beginning.
HEADERS = 3 * 256 * 1024 + 64 * 1024
TOTAL = sum(len(body) for body in MODEL.values())
WANTED = {FIRST: {"embed.weight"}, SECOND: {"layers.1.bias", "layers.1.weight"}}


@pytest.fixture
async def node(seaweed, data, tmp_path):
    async with s3_node(seaweed, data, tmp_path) as own:
        for path, body in MODEL.items():
            own.bucket.put(f"m/{path}", body)
        yield own


def tensors_of(body):
    return dict(safetensors.deserialize(body))


def check_part(files):
    """It is what LOAD takes of MODEL, as the reference reader sees it."""
    assert set(files) == {"config.json", INDEX, *WANTED}
    assert files["config.json"] == MODEL["config.json"]
    for shard, names in WANTED.items():
        found = tensors_of(files[shard])
        assert found.keys() == names
        for name in names:
            assert found[name]["data"] == tensor_bytes(name, SHARDS[shard][name])
    index = json.loads(files[INDEX])
    assert index["weight_map"] == {n: shard for shard, names in WANTED.items() for n in names}
    sizes = [SHARDS[shard][name] for shard, names in WANTED.items() for name in names]
    assert index["metadata"]["total_size"] == sum(sizes)


async def test_only_the_wanted_tensors_are_read_from_a_store(node):
    await node.want(load=LOAD)
    (entry,) = node.bench.cluster.entries
    assert TAKEN < entry.size_bytes < TAKEN + 16 * 1024, "the smaller size is reserved"
    node.store.reset_counts()
    async with node.started():
        check_part(await node.holds())
    assert node.store.total_bytes < TAKEN + 64 * 1024
    assert not [path for path, _ in node.store.served if THIRD in path], "a shard is left out"
    parts = [headers for _, headers in node.store.served if "range" in headers]
    assert parts
    assert all("if-match" in headers for headers in parts)
    content = node.door.manifests.contents["v1"]
    assert content.size_bytes == entry.size_bytes


async def test_what_is_held_of_a_source_is_not_read_again_for_another_part_of_it(node):
    """From a part to the whole, and from the whole to another part."""
    await node.want(load=LOAD)
    async with node.started():
        await node.holds()
        node.store.reset_counts()
        await node.want("v2")
        assert await node.holds("v2") == MODEL
        # Whole pieces of 8 MiB are taken over: of layers.1.weight, two.
        assert node.store.total_bytes < TOTAL - 2 * PIECE_BYTES + 64 * 1024
        node.store.reset_counts()
        await node.want("v3", load=["layers.*"])
        small = await node.holds("v3")
    assert node.store.total_bytes < HEADERS, "no tensor"
    assert tensors_of(small[SECOND]) == tensors_of(MODEL[SECOND])
    contents = node.door.manifests.contents
    assert len({contents[uid].digest for uid in ("v1", "v2", "v3")}) == 3


async def test_C22_what_is_held_and_damaged_is_not_taken_over(node):
    await node.want(load=LOAD)
    async with node.started():
        await node.holds()
        tree = tree_of(node.bench.root, node.door.manifests.contents["v1"].digest)
        damage_in_place(tree / SECOND, 20 * MIB)
        await node.want("v2", load=["layers.*"])
        small = await node.holds("v2")
    assert tensors_of(small[SECOND]) == tensors_of(MODEL[SECOND])


def damage_in_place(path, offset):
    """As a disk does: neither size nor date tells."""
    before, mode = path.stat(), path.stat().st_mode
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0xFF]))
    path.chmod(mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


async def test_C22_what_is_damaged_on_the_way_is_found_where_the_content_is_pinned(node):
    await node.want(load=LOAD)
    async with node.started():
        await node.holds()
    digest = node.door.manifests.contents["v1"].digest
    node.bench.cluster.want()
    await node.bench.until(lambda: not node.bench.cluster.entries, "the entry to go")
    node.store.script(SECOND, Fault(flip_at=MIB))
    await node.want("v2", load=["layers.2.*"], digest=digest)
    async with node.started():
        reason, _ = await node.fails("v2")
    assert reason == "DigestMismatch"


async def test_C12_a_shard_replaced_between_its_header_and_its_tensors_is_an_error(node):
    await node.want(load=LOAD)
    other = dict(reversed(SHARDS[SECOND].items()))
    node.bucket.put(f"m/{SECOND}", shard_body(other))
    async with node.started():
        reason, message = await node.fails()
    assert reason == "SourceChanged"
    assert SECOND in message


async def test_from_the_hub(hub, hub_sources, tmp_path):
    hub.add("org/name", MODEL, is_private=True, admitted={"hf_example"})
    version = make_version("hf://org/name", endpoint=hub.url, secret="hub", load=LOAD, uid="v1")
    await fetch(hub_sources, version, tmp_path)
    assert hub.cdn.sent_bytes < TAKEN + HEADERS, "headers by ranges, too"


async def test_from_a_web_server(site, web_sources, tmp_path):
    for path, body in MODEL.items():
        (tmp_path / "site" / path).write_bytes(body)
    version = make_version(f"{site.url}/", files=["config.json", INDEX], load=LOAD, uid="v1")
    await fetch(web_sources, version, tmp_path)
    assert set(site.served("GET", f"/{SECOND}")) == {206}


async def fetch(sources, version, folder):
    """The part on a node's disk, and what is compared when the source is looked at again."""
    door = HubDoor(sources)
    await door.open()
    (folder / "store").mkdir()
    bench = Bench(folder / "store", door, None, PlayedCluster())
    entry = await door.resolve(version)
    bench.cluster.want(entry)
    async with bench.started(f"--grant-token-file={door.write_token(folder)}"):
        await bench.until_state("v1", "Cached")
    check_part(read_tree(tree_of(bench.root, door.manifests.contents["v1"].digest)))
    kept = await door.manifests.get_source("v1", entry.source_digest)
    assert kept.listed.digest == (await sources.resolve(version)).digest
    await door.close()


@pytest.mark.parametrize(
    ("files", "load", "reason", "told"),
    [
        (MODEL, ["layers.*", "lm_head.*"], "TensorsNotFound", "'lm_head.*'"),
        ({**MODEL, "m.gguf": b"GGUF"}, LOAD, "SourceInvalid", "'m.gguf'"),
        ({"config.json": b"{}"}, LOAD, "SourceInvalid", "none is among the files"),
        ({"a.safetensors": MODEL[FIRST][:-1]}, LOAD, "NotAModel", "'a.safetensors'"),
        ({FIRST: MODEL[FIRST], INDEX: b"[]"}, ["embed.*"], "SourceInvalid", INDEX),
    ],
)
async def test_what_cannot_be_cut_has_a_reason(node, files, load, reason, told):
    for path, body in files.items():
        node.bucket.put(f"other/{path}", body)
    with pytest.raises(SourceError) as caught:
        await node.want(prefix="other", load=load)
    assert caught.value.reason == reason
    assert told in caught.value.message


async def test_a_server_without_ranges_is_named_before_any_node_reads(web, web_sources):
    web.put(MODEL)
    web.knows_ranges = False
    version = make_version(f"{web.url}/", files=[INDEX], load=LOAD)
    listed = await web_sources.resolve(version)
    with pytest.raises(SourceError, match="sends all of") as caught:
        await PartLoader(web_sources).cut(version, listed)
    assert caught.value.reason == "SourceInvalid"
