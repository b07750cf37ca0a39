"""Who states the sha256 of another namespace's bytes without having them never gets them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from fakes.fetch_world import safetensors_body
from fakes.played_kubelet import Pod
from fakes.range_server import Served
from fakes.store_world import read_tree
from fakes.volume_world import PlayedPods
from modelcache_agent.decide.possession import SPAN_BYTES, SPANS
from modelcache_api.wire import SlotAnswer

MIB = 1 << 20
PATH = "model.safetensors"
SECRET = safetensors_body(9 * MIB, 1)
SMALL_SECRET = safetensors_body(MIB, 2)
OTHER = safetensors_body(9 * MIB, 3)
TUNED = OTHER[: 7 * MIB] + SECRET[7 * MIB :]


def sha256_of(body):
    return hashlib.sha256(body).hexdigest()


async def hold(bench, body):
    """The victim's version is on the node."""
    bench.offer("victim", {PATH: body}, knows_content=True)
    bench.cluster.want(bench.entry("victim"))
    await bench.until(lambda: bench.cluster.labels, "the victim's label")
    await bench.until_state("victim", "Cached")
    bench.objects.requests.clear()


def claim(bench, claimed, served, uid="thief", caches=None):
    """A version whose store states the sha256 of `claimed` and serves `served`."""
    version = bench.offer(uid, {PATH: claimed}, stated={PATH: sha256_of(claimed)})
    bench.objects.objects[f"{uid}/{PATH}"] = replace(served, etag=f'"{version.etag}"')
    bench.cluster.want(*bench.cluster.entries, bench.entry(uid, known=False), caches=caches)
    return version


def asked(bench, uid="thief"):
    return [headers["range"] for path, headers in bench.objects.requests if path == f"{uid}/{PATH}"]


def count_bytes(ranges):
    bounds = [range_.removeprefix("bytes=").split("-") for range_ in ranges]
    return sum(int(last) + 1 - int(first) for first, last in bounds)


def trees(bench):
    return [read_tree(tree) for tree in (bench.root / "versions").iterdir()]


LIES = [
    pytest.param(SECRET, OTHER, id="other bytes of the same length"),
    pytest.param(SECRET, TUNED, id="bytes that are partly the same"),
    pytest.param(SMALL_SECRET, safetensors_body(MIB, 4), id="a file too small to be asked about"),
]


@pytest.mark.parametrize(("secret", "served"), LIES)
async def test_a_stated_sha256_does_not_give_the_bytes_to_who_serves_others(bench, secret, served):
    async with bench.started():
        await hold(bench, secret)
        before = bench.cluster.labels
        claim(bench, secret, Served.of(served))
        await bench.until_state("thief", "Failed", "DigestMismatch")
        thief, victim = bench.cluster.entry("thief"), bench.cluster.entry("victim")
        assert sha256_of(secret) in thief.message
        assert sha256_of(served) in thief.message
        assert bench.cluster.labels == before
        assert thief.content_digest is None
        assert bench.grants.versions["thief"].adopted is None, "nothing was proposed"
        assert trees(bench) == [{PATH: secret}]
        assert victim.state == "Cached"


REFUSALS = [
    pytest.param(
        lambda bench: setattr(bench.objects, "ignores_ranges", True),
        "DigestMismatch",
        id="whole files only",
    ),
    pytest.param(lambda bench: bench.objects.objects.clear(), "SourceGone", id="nothing"),
]


@pytest.mark.parametrize(("refuse", "reason"), REFUSALS)
async def test_a_stated_sha256_does_not_give_the_bytes_to_who_shows_none(bench, refuse, reason):
    async with bench.started():
        await hold(bench, SECRET)
        claim(bench, SECRET, Served.of(OTHER))
        refuse(bench)
        await bench.until_state("thief", "Failed", reason)
        assert len(bench.cluster.labels) == 1
        assert trees(bench) == [{PATH: SECRET}]


async def test_a_beginning_that_is_right_does_not_give_the_rest(bench):
    """The sha256 is that of a longer file, of which only the beginning is known."""
    async with bench.started():
        await hold(bench, SECRET)
        known = SECRET[: 8 * MIB + SPAN_BYTES]
        version = bench.offer("thief", {PATH: known}, stated={PATH: sha256_of(SECRET)})
        bench.objects.objects[f"thief/{PATH}"] = Served.of(known, version.etag)
        bench.cluster.want(*bench.cluster.entries, bench.entry("thief", known=False))
        await bench.until_state("thief", "Failed")
        assert bench.cluster.entry("thief").reason in ("DigestMismatch", "NotAModel")
        assert trees(bench) == [{PATH: SECRET}]


async def test_who_has_the_bytes_shows_a_few_and_the_rest_is_not_read(bench):
    async with bench.started():
        await hold(bench, SECRET)
        claim(bench, SECRET, Served.of(SECRET), "sharer")
        await bench.until_state("sharer", "Cached")
        ranges = asked(bench, "sharer")
        assert 1 < len(ranges) <= SPANS
        assert count_bytes(ranges) <= SPANS * SPAN_BYTES
        assert all("if-match" in headers for _path, headers in bench.objects.requests)


async def test_what_was_adopted_for_the_version_is_used_without_a_question(bench):
    async with bench.started():
        await hold(bench, SECRET)
        bench.offer("second", {PATH: SECRET}, knows_content=True)
        bench.cluster.want(*bench.cluster.entries, bench.entry("second"))
        await bench.until_state("second", "Cached")
        assert not bench.objects.requests


async def test_a_pod_of_the_thief_is_never_shown_the_bytes(bench, tmp_path):
    """Followed to the hand-over: the pod hears why, and its volume stays empty."""
    pods = PlayedPods(bench.root, tmp_path / "kubelet")
    async with bench.started():
        await hold(bench, SECRET)
        version = claim(bench, SECRET, Served.of(OTHER), caches={"thieves/minilm": "thief"})
        assert version.content_digest == bench.grants.versions["victim"].content_digest
        own = pods.add(Pod(namespace="thieves"))
        await bench.until(lambda: own.state == "Failed", "the failure to be told")
        assert own.status["reason"] == "DigestMismatch"
        assert own.model == {}


async def test_a_slot_that_is_lost_among_the_questions_is_waited_for_again(bench):
    granted = SlotAnswer(lease_seconds=5.0, ask_again_seconds=0.1, bytes_per_second=MIB // 8)
    async with bench.started():
        await hold(bench, SECRET)
        bench.grants.slot = granted
        claim(bench, SECRET, Served.of(SECRET), "sharer")
        await bench.until(lambda: asked(bench, "sharer"), "the first question")
        bench.grants.slot = SlotAnswer(message="others read it", ask_again_seconds=0.1)
        await bench.until_state("sharer", "Pending", "Queued")
        bench.grants.slot = granted.model_copy(update={"bytes_per_second": None})
        await bench.until_state("sharer", "Cached")
    assert count_bytes(asked(bench, "sharer")) <= 2 * SPANS * SPAN_BYTES
