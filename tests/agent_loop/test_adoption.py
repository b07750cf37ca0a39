"""A local tree in place of a download: the whole agent takes it and asks the store for nothing."""

from __future__ import annotations

import pytest

from fakes.fetch_world import random_body, safetensors_body
from fakes.store_world import read_tree
from modelcache_agent.adopt.program import adopt
from modelcache_agent.fetch.partial import file_stem

MODEL = {
    "model.safetensors": safetensors_body(9 << 20),
    "sub/tokenizer.json": random_body(5000),
    "config.json": b"{}",
}


def tree_of(folder, bodies):
    for path, body in bodies.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(body)
    return folder


@pytest.mark.parametrize("known", [True, False], ids=["content known", "content not known"])
async def test_an_adopted_tree_is_held_without_a_byte_from_the_network(bench, tmp_path, known):
    bench.offer("v1", MODEL, knows_content=known)
    async with bench.started():
        adopt(bench.root, tree_of(tmp_path / "t", MODEL), "v1")
        bench.cluster.want(bench.entry("v1", known=known))
        await bench.until_state("v1", "Cached")
        assert read_tree(bench.tree("v1")) == MODEL
        assert bench.objects.requests == []
        assert not (bench.root / "adopt" / "v1").exists()
        assert not (bench.root / "partial" / "v1").exists()


async def test_only_what_is_missing_or_wrong_is_fetched(bench, tmp_path):
    bench.offer("v1", MODEL, knows_content=True)
    wrong = {**MODEL, "sub/tokenizer.json": random_body(5000, 2), "extra.bin": b"x"}
    del wrong["config.json"]
    adopt_root = tree_of(tmp_path / "t", wrong)
    async with bench.started():
        adopt(bench.root, adopt_root, "v1")
        bench.cluster.want(bench.entry("v1"))
        await bench.until_state("v1", "Cached")
        assert read_tree(bench.tree("v1")) == MODEL
    assert {path for path, _ in bench.objects.requests} == {
        "v1/config.json",
        "v1/sub/tokenizer.json",
    }


async def test_what_was_damaged_after_it_was_staged_is_found_by_its_hash(bench, tmp_path):
    bench.offer("v1", MODEL)
    async with bench.started():
        adopt(bench.root, tree_of(tmp_path / "t", MODEL), "v1")
        victim = bench.root / "adopt" / "v1" / file_stem("model.safetensors")
        with victim.open("r+b") as file:
            file.seek(5000)
            file.write(b"damage")
        bench.cluster.want(bench.entry("v1", known=False))
        await bench.until_state("v1", "Cached")
        assert read_tree(bench.tree("v1")) == MODEL
    [(path, headers)] = bench.objects.requests
    assert (path, headers["range"]) == ("v1/model.safetensors", "bytes=0-8388607")


async def test_a_tree_for_another_version_is_not_touched(bench, tmp_path):
    bench.offer("v1", MODEL)
    async with bench.started():
        adopt(bench.root, tree_of(tmp_path / "t", MODEL), "v2")
        bench.cluster.want(bench.entry("v1", known=False))
        await bench.until_state("v1", "Cached")
        assert bench.objects.requests
        assert (bench.root / "adopt" / "v2").is_dir()


async def test_a_tree_that_comes_too_late_is_dropped(bench, tmp_path):
    bench.offer("v1", MODEL)
    async with bench.started():
        bench.cluster.want(bench.entry("v1"))
        await bench.until_state("v1", "Cached")
        adopt(bench.root, tree_of(tmp_path / "t", MODEL), "v1")
        bench.cluster.nudge()
        await bench.until(lambda: not (bench.root / "adopt" / "v1").exists(), "the tree to go")
        assert read_tree(bench.tree("v1")) == MODEL


async def test_a_tree_that_nobody_wants_yet_takes_room(bench, tmp_path):
    """The version it is meant for needs no room beside it; another one finds none."""
    bench.capacity = 10 << 20
    bench.offer("v1", MODEL)
    bench.offer("v2", {"w.bin": random_body(4 << 20)})
    async with bench.started():
        adopt(bench.root, tree_of(tmp_path / "t", MODEL), "v1")
        bench.cluster.want(bench.entry("v2", known=False))
        await bench.until_state("v2", "Failed", "InsufficientSpace")
        bench.cluster.want(bench.entry("v1", known=False))
        await bench.until_state("v1", "Cached")
        assert not [path for path, _ in bench.objects.requests if path.startswith("v1/")]


async def test_C20_an_adopted_page_in_place_of_weights_is_refused(bench, tmp_path):
    page = b"<!DOCTYPE html><html>" + bytes(1000)
    bench.offer("v1", {"model.safetensors": page})
    async with bench.started():
        adopt(bench.root, tree_of(tmp_path / "t", {"model.safetensors": page}), "v1")
        bench.cluster.want(bench.entry("v1", known=False))
        await bench.until_state("v1", "Failed", "NotAModel")
        assert not bench.tree("v1").exists()
