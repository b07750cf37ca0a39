"""A hub that fails, forgets or refuses while a node reads from it; and one that is away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.hub_http import Told
from fakes.hub_node import MODEL, PRIVATE, WEIGHTS
from modelcache_api.manifest import PIECE_BYTES


def at_the_second_request(node, act):
    """Do this when the CDN is asked for the second part; what it returns is the answer."""
    seen = []

    def answer(asked):
        seen.append(asked)
        return act(asked) if len(seen) == 2 else None

    node.hub.cdn.override = answer


def cut(node):
    def act(asked):
        return replace(node.hub.cdn.answer(asked), cut_at=1000)

    return act


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="C04 cut"),
        pytest.param(Told(500), id="500"),
        pytest.param(Told(429, headers={"Retry-After": "1"}), id="429 with Retry-After"),
        pytest.param(Told(503), id="503 without"),
    ],
)
async def test_what_passes_costs_nothing_that_was_read(node, answer):
    node.hub.add("org/name", MODEL)
    at_the_second_request(node, cut(node) if answer is None else lambda _: answer)
    await node.want(node.version())
    async with node.started("--streams=1"):
        assert await node.holds() == MODEL
    assert node.cdn_bytes <= len(WEIGHTS) + 1000
    assert len(node.hub.cdn.requests) == 3


async def test_C04_a_small_file_that_is_cut_is_read_again(node):
    node.hub.add("org/name", MODEL)
    asked_for = []

    def cut_once(asked):
        if asked.path.endswith("config.json") and "resolve-cache" in asked.path:
            asked_for.append(asked)
            if len(asked_for) == 1:
                return replace(node.hub.answer(asked), cut_at=1)
        return None

    node.hub.override = cut_once
    await node.want(node.version())
    async with node.started():
        assert await node.holds() == MODEL
    assert len(asked_for) == 3, "two files, one of them twice"


def revoke(node, data):
    node.hub.tokens.clear()
    data.put_secret("hub", HF_TOKEN="hf_revoked")


def renew(node, data):
    node.hub.tokens.add("hf_renewed")
    node.hub.repositories["org/name"].admitted.add("hf_renewed")
    data.put_secret("hub", HF_TOKEN="hf_renewed")


def delete(node, data):
    node.kept = node.hub.repositories.pop("org/name")


def restore(node, data):
    node.hub.repositories["org/name"] = node.kept


def refuse(node, data):
    node.hub.override = lambda asked: Told(429) if asked.method == "HEAD" else None


def admit(node, data):
    node.hub.override = lambda _: None


@pytest.mark.parametrize(
    ("harm", "mend", "reason"),
    [
        pytest.param(revoke, renew, "AuthFailed", id="C09 the token is revoked"),
        pytest.param(delete, restore, "SourceGone", id="C21 the repository is deleted"),
        pytest.param(refuse, admit, "Throttled", id="the hub is busy"),
    ],
)
async def test_what_ends_half_way_has_one_reason_and_goes_on_where_it_was(
    node, data, harm, mend, reason
):
    """The addresses end, and the hub gives no new ones. The agent is restarted meanwhile."""
    node.hub.add("org/name", MODEL, **PRIVATE)

    def end(_):
        node.hub.cdn.end_all()
        node.door.sources._addresses._found.clear()
        harm(node, data)

    at_the_second_request(node, end)
    await node.want(node.version(secret="hub"))
    async with node.started("--streams=1"):
        await node.bench.until_state("v1", "Failed", reason)
    requests = len(node.hub.cdn.requests)
    assert requests == 2, "no hot loop"
    read = node.cdn_bytes
    mend(node, data)
    node.forget_status()
    async with node.started("--streams=1"):
        assert await node.holds() == MODEL
    assert read < len(WEIGHTS)
    assert node.cdn_bytes - read <= len(WEIGHTS) - 4 * PIECE_BYTES, "the rest, and nothing twice"


async def test_C14_a_restart_with_the_hub_away_asks_nobody(node):
    node.hub.add("org/name", MODEL)
    await node.want(node.version())
    async with node.started():
        assert await node.holds() == MODEL
    node.hub.override = node.hub.cdn.override = lambda _: Told(cut=True)
    asked = len(node.hub.requests), len(node.hub.cdn.requests), len(node.door.answers)
    node.forget_status()
    async with node.started():
        assert await node.holds() == MODEL
    assert (len(node.hub.requests), len(node.hub.cdn.requests), len(node.door.answers)) == asked
