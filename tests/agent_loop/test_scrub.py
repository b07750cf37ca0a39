"""Silent damage: bytes that change under equal size and times are found, told and fetched again."""

from __future__ import annotations

import asyncio
import json

import pytest

from fakes.agent_kills import gate_of, kill_agent
from fakes.fetch_world import safetensors_body
from fakes.store_world import find_held, flip_bits, opened, read_tree
from modelcache_agent import scrubbing
from modelcache_agent.tiers import scrub_book
from modelcache_agent.tiers.checking import find_reading

MIB = 1 << 20
PIECE = 8 * MIB
# Two whole pieces and the beginning of a third.
WEIGHTS = safetensors_body(17 * MIB)
MODEL = {"model.safetensors": WEIGHTS, "config.json": b"{}"}
SIBLING = {"model.safetensors": WEIGHTS, "config.json": b'{"v": 2}'}
SOON = ("--scrub-interval=100ms", "--scrub-bandwidth=1Gi")


def weights_of(bench, uid="v1"):
    inode = (bench.tree(uid) / "model.safetensors").stat().st_ino
    blobs = (bench.root / "blobs" / "sha256").iterdir()
    return next(path for path in blobs if path.stat().st_ino == inode)


def quarantined(bench):
    return sorted((bench.root / "quarantine").iterdir())


async def hold(bench, *offers):
    for uid, bodies in offers:
        bench.offer(uid, bodies, knows_content=True)
    bench.cluster.want(*(bench.entry(uid) for uid, _ in offers))
    for uid, _ in offers:
        await bench.until_state(uid, "Cached")
    await bench.until(lambda: len(bench.cluster.labels) == len(offers), "the labels")
    bench.objects.requests.clear()


async def until_damaged_and_repaired(bench, *uids):
    def told():
        return {
            e.uid for s in bench.cluster.status_writes for e in s.entries if e.reason == "Damaged"
        }

    await bench.until(lambda: told() == set(uids), "damage to be told")
    for uid in uids:
        await bench.until_state(uid, "Cached")
    await bench.until(lambda: len(bench.cluster.labels) == len(uids), "the labels to be back")


def asked(bench):
    """Path and range of each request."""
    return {
        (path.lstrip("/").split("?")[0], head["range"]) for path, head in bench.objects.requests
    }


async def test_C22_the_label_goes_first_and_the_damaged_piece_alone_is_fetched(bench):
    seen = []
    async with bench.started("--scrub-interval=never"):
        await hold(bench, ("v1", MODEL))
        blob = weights_of(bench)
    with (bench.tree("v1") / "model.safetensors").open("rb") as reader:
        flip_bits(blob, PIECE + 5)
        bench.cluster.on_labels = lambda _, keys: seen.append(
            (bool(keys), blob.exists(), len(quarantined(bench)))
        )
        bench.cluster.nudge()
        async with bench.started(*SOON):
            await until_damaged_and_repaired(bench, "v1")
        assert seen[0] == (False, True, 0), "no label before anything leaves its place"
        assert seen[-1][0]
        reader.seek(PIECE + 5)
        assert reader.read(1)[0] == WEIGHTS[PIECE + 5] ^ 1, "who had it open keeps what it had"
    assert read_tree(bench.tree("v1")) == MODEL
    assert [path.stat().st_size for path in quarantined(bench)] == [len(WEIGHTS)]
    assert asked(bench) == {("v1/model.safetensors", f"bytes={PIECE}-{2 * PIECE - 1}")}
    message = next(
        entry.message
        for status in bench.cluster.status_writes
        for entry in status.entries
        if entry.reason == "Damaged" and entry.state == "Downloading"
    )
    assert "1 of 3 pieces of 'model.safetensors' (1)" in message


async def test_C22_nothing_leaves_its_place_while_the_label_cannot_be_removed(bench):
    async with bench.started(*SOON):
        await hold(bench, ("v1", MODEL))
        blob = weights_of(bench)
        bench.cluster.is_away = True
        flip_bits(blob, 0)
        await bench.until(lambda: book_of(bench).get("damaged"), "the damage to be known")
        await asyncio.sleep(0.5)
        assert blob.exists()
        assert quarantined(bench) == []
        bench.cluster.is_away = False
        await until_damaged_and_repaired(bench, "v1")
        assert read_tree(bench.tree("v1")) == MODEL


async def test_C22_damage_of_a_shared_file_concerns_both_versions_and_is_fetched_once(bench):
    async with bench.started(*SOON):
        await hold(bench, ("v1", MODEL), ("v2", SIBLING))
        bench.cluster.label_writes.clear()
        flip_bits(weights_of(bench), 3)
        await until_damaged_and_repaired(bench, "v1", "v2")
        assert bench.cluster.label_writes[0] == frozenset()
        assert [read_tree(bench.tree(uid)) for uid in ("v1", "v2")] == [MODEL, SIBLING]
        assert {span for _, span in asked(bench)} == {f"bytes=0-{PIECE - 1}"}
        assert len(bench.objects.requests) == 1


async def test_C22_C21_damage_whose_source_is_gone_says_so_and_keeps_the_rest(bench):
    async with bench.started(*SOON):
        await hold(bench, ("v1", MODEL))
        kept = (bench.tree("v1") / "config.json").stat().st_ino
        bench.objects.objects.clear()
        flip_bits(weights_of(bench), 3)
        await bench.until_state("v1", "Failed", "Damaged")
        message = bench.cluster.entry("v1").message
        assert "model.safetensors" in message
        assert "cannot be fetched again: SourceGone" in message
        assert kept in {path.stat().st_ino for path in (bench.root / "blobs/sha256").iterdir()}
        assert bench.cluster.labels == frozenset()


async def test_C22_damage_during_the_repair_is_found_at_once_and_the_next_repair_waits(bench):
    async with bench.started(*SOON):
        await hold(bench, ("v1", MODEL))
        gate = gate_of(bench, "v1")
        gate.close(PIECE + MIB)
        flip_bits(weights_of(bench), PIECE + 7)
        await bench.until(gate.reached.is_set, "the repair to have begun")
        (partial,) = (bench.root / "partial" / "v1").glob("*.part")
        await bench.until(lambda: is_proved(bench), "the salvaged piece to be proved")
        flip_bits(partial, 5 * MIB)
        gate.stop_at = None
        gate.hang_up.set()
        await bench.until_state("v1", "Failed", "Damaged")
        assert "damaged again: check the disk" in bench.cluster.entry("v1").message
        assert bench.cluster.labels == frozenset()
        assert len(quarantined(bench)) == 2
        requests = len(bench.objects.requests)
        for _ in range(5):
            bench.cluster.nudge()
            await asyncio.sleep(0.2)
        assert len(bench.objects.requests) == requests, "it is not repaired in a circle"


def is_proved(bench):
    return bench.cluster.entry("v1").progress_percent >= 40


def book_of(bench):
    try:
        return json.loads((bench.root / "scrub.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return {}


@pytest.fixture
def short_slices(monkeypatch):
    monkeypatch.setattr(scrubbing, "_SLICE_PIECES", 1)
    monkeypatch.setattr(scrub_book, "_SAVE_SECONDS", 0.0)


def test_C22_a_kill_in_the_middle_of_a_check_goes_on_from_there(bench, short_slices):
    asyncio.run(hold_once(bench))
    slow = ("--scrub-interval=1ms", "--scrub-bandwidth=4Mi")

    def is_half_read():
        return ((book_of(bench).get("cursor")) or {}).get("pieces", 0) >= 1

    kill_agent(bench, bench.entry("v1"), is_half_read, options=slow)
    with opened(bench.root) as store:
        assert find_held(store, bench.grants.versions["v1"].content_digest).is_verified
        _, first_piece = find_reading(store, weights_of(bench).name)
        assert first_piece >= 1
    assert bench.objects.requests == []


def test_C22_a_kill_in_the_middle_of_a_repair_fetches_no_other_file(bench):
    asyncio.run(hold_once(bench))
    flip_bits(weights_of(bench), PIECE + 7)
    gate = gate_of(bench, "v1")
    gate.close(PIECE + MIB)
    kill_agent(bench, bench.entry("v1"), gate.reached.is_set, options=SOON)
    gate.hang_up.set()
    with opened(bench.root) as store:
        held = find_held(store, bench.grants.versions["v1"].content_digest)
        assert [damage.pieces for damage in held.damage] == [(1,)]
        assert not held.is_verified
    gate.close(None)
    asyncio.run(finish(bench))
    assert {path for path, _ in asked(bench)} == {"v1/model.safetensors"}
    assert {span.split("-")[0] for _, span in asked(bench)} == {f"bytes={PIECE}"}


async def hold_once(bench):
    async with bench.started("--scrub-interval=never"):
        await hold(bench, ("v1", MODEL))


async def finish(bench):
    bench.cluster.labels = frozenset()
    bench.cluster.label_writes.clear()
    bench.cluster.want(bench.entry("v1"))
    async with bench.started("--scrub-interval=never"):
        await bench.until(lambda: bench.cluster.labels, "the label")
        assert read_tree(bench.tree("v1")) == MODEL
