"""`kubectl modelcache evict`: whom it asks, and what it says."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

from builders import NOW, digest
from fakes.played_objects import PlayedKube, entry, entry_spec, merge, node, version
from modelcache_agent.adapters.kube_cluster import read_dismissals
from modelcache_cli import change_commands
from modelcache_cli.__main__ import app
from modelcache_cli.errors import CliError
from modelcache_cli.evicting import ask_to_evict, evict_copies, find_copies, watch_evictions
from modelcache_kube import Forbidden
from modelcache_operator.decide.world import ObjectKey

KEY = ObjectKey("search", "m1")
FREE = [entry_spec(evictable=True)]


def a_holder(name="n1", specs=FREE, entries=None, **fields):
    return node(name, specs=specs, entries=[entry()] if entries is None else entries, **fields)


async def ask(*nodes, names=("n1",)):
    kube = PlayedKube(modelversions=[version()], cachenodes=nodes)
    uid, found = await find_copies(kube, KEY, names)
    await ask_to_evict(kube, found, uid, NOW)
    return kube, uid


async def evict(kube, *names, seconds=3, sleep=None):
    async def pass_on(_seconds):
        return None

    sleep = sleep or pass_on
    return await evict_copies(kube, KEY, names, seconds=seconds, sleep=sleep)


async def test_each_node_is_asked_by_an_annotation_that_its_agent_reads():
    kube, uid = await ask(a_holder(), a_holder("n2"), names=("n1", "n2", "n1"))
    assert uid == "u1"
    assert [patch[2] for patch in kube.patches] == ["n1", "n2"]
    plural, namespace, _, body, options = kube.patches[0]
    assert (plural, namespace, options) == (
        "cachenodes",
        None,
        {"field_manager": "kubectl-modelcache"},
    )
    assert body["metadata"]["uid"] == "cn-n1"
    assert read_dismissals(body["metadata"]) == {"u1": NOW.timestamp()}
    assert set(body) == {"metadata"}


async def test_wishes_about_versions_that_are_gone_are_taken_away():
    annotations = {
        "evict.modelcache.io/gone": "2026-01-01T00:00:00Z",
        "evict.modelcache.io/u2": "2026-01-01T00:00:00Z",
        "note": "kept",
    }
    holder = a_holder(specs=[*FREE, entry_spec("u2")], metadata={"annotations": annotations})
    kube, _ = await ask(holder)
    written = kube.patches[0][3]["metadata"]["annotations"]
    assert written["evict.modelcache.io/gone"] is None
    assert set(written) == {"evict.modelcache.io/gone", "evict.modelcache.io/u1"}


@pytest.mark.parametrize(
    ("holder", "said"),
    [
        pytest.param(a_holder(alive=False), "node n1: its agent is silent", id="silent"),
        pytest.param(a_holder(specs=[]), "node n1 holds no verified copy", id="not wanted"),
        pytest.param(a_holder(entries=[]), "node n1 holds no verified copy", id="not there"),
        pytest.param(
            a_holder(entries=[entry(state="Downloading")]), "no verified copy", id="on its way"
        ),
        pytest.param(
            a_holder(specs=[entry_spec(pinned=True)]), "a ModelCache pins search/m1", id="pinned"
        ),
        pytest.param(a_holder(specs=[entry_spec()]), "counts on it for minReady", id="protected"),
        pytest.param(a_holder(entries=[entry(mounts=2)]), "volumes of 2 pods use", id="mounted"),
    ],
)
async def test_a_copy_that_has_to_stay_is_refused_with_the_cause(holder, said):
    with pytest.raises(CliError, match=said):
        await ask(holder)


async def test_nobody_is_asked_unless_all_may_let_it_go():
    kube = PlayedKube(modelversions=[version()], cachenodes=[a_holder(), a_holder("n2", specs=[])])
    with pytest.raises(CliError, match="node n2 holds no verified copy"):
        await evict(kube, "n1", "n2")
    assert kube.patches == []


async def test_a_refusal_names_the_copies_that_may_go_instead():
    kept = a_holder(specs=[entry_spec()])
    with pytest.raises(CliError, match=r"; no copy of it may go now$"):
        await ask(kept)
    others = [a_holder(f"n{number}") for number in range(2, 9)]
    with pytest.raises(CliError, match=r"; those on n2, n3, n4, n5, n6 and 2 more may go$"):
        await ask(kept, *others)


async def test_a_node_that_is_not_there_is_said():
    with pytest.raises(CliError, match="no agent has reported from a node 'n9'"):
        await ask(names=("n9",))


HELD = entry()
GOING = entry(state="Evicted", reason="Evicted", contentDigest=digest("c"))
GONE = entry(state="Evicted", reason="Evicted")


async def watch(*states):
    """Node n1 through these states, one for each look; the last one stays."""
    kube = PlayedKube(cachenodes=[a_holder()])
    left = list(states)

    async def sleep(_seconds):
        show()

    def show():
        entries = [] if left[0] is None else [left[0]]
        kube.objects["cachenodes"] = [a_holder(entries=entries)]
        if len(left) > 1:
            left.pop(0)

    show()
    (outcome,) = await watch_evictions(kube, "u1", ["n1"], 3, sleep)
    return outcome, kube.asked["cachenodes"]


@pytest.mark.parametrize(
    ("states", "told", "looks"),
    [
        ([HELD, GOING, GONE], "evicted; it comes back when a pod asks", 3),
        ([HELD, None], "not wanted there any more: it goes without being asked", 2),
        ([entry(state="Downloading")], "evicted, and Downloading anew", 1),
    ],
)
async def test_it_is_waited_for(states, told, looks):
    outcome, asked = await watch(*states)
    assert (outcome.is_gone, outcome.told, asked) == (True, told, looks)


@pytest.mark.parametrize(
    ("last", "told"),
    [
        pytest.param(
            HELD, "a pod waits for it, a process has it open, or its agent needs more", id="in use"
        ),
        pytest.param(entry(mounts=2), "volumes of 2 pods use it", id="mounted since"),
        pytest.param(GOING, "its label, or its bytes in a faster tier", id="condemned only"),
        pytest.param(
            {**GOING, "reason": "StoreError", "message": "read-only"},
            "StoreError: read-only",
            id="the disk refuses",
        ),
        pytest.param(
            entry(state="Pending", reason="Damaged", message="1 file"),
            "it is Pending: 1 file",
            id="damaged, and repaired in its place",
        ),
    ],
)
async def test_what_is_not_gone_is_never_said_to_be_evicted(last, told):
    outcome, asked = await watch(HELD, last)
    assert (outcome.is_gone, asked) == (False, 4)
    assert outcome.told.startswith(f"still there, asked no more: {told}")


async def test_whoever_stops_waiting_takes_the_wish_back():
    kube = PlayedKube(modelversions=[version()], cachenodes=[a_holder(), a_holder("n2")])
    written = {}

    async def patch(_resource, name, body, **_options):
        (node,) = [one for one in kube.objects["cachenodes"] if one["metadata"]["name"] == name]
        node["metadata"] = merge(node["metadata"], body["metadata"])
        written.setdefault(name, []).append(body["metadata"])

    kube.merge_patch = patch

    async def stop(_seconds):
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await evict(kube, "n1", "n2", sleep=stop)
    for name in ("n1", "n2"):
        wish, back = written[name]
        assert list(wish["annotations"]) == ["evict.modelcache.io/u1"]
        assert back == {"uid": f"cn-{name}", "annotations": {"evict.modelcache.io/u1": None}}
    outcomes = await evict(kube, "n1", seconds=0)
    assert [one.is_gone for one in outcomes] == [False]
    assert not kube.objects["cachenodes"][0]["metadata"]["annotations"]


async def test_the_time_of_the_wish_is_the_api_servers_and_later_than_any_copy_of_its_second():
    kube = PlayedKube(modelversions=[version()], cachenodes=[a_holder()])
    await evict(kube, "n1", seconds=0)
    (asked_at,) = read_dismissals(kube.patches[0][3]["metadata"]).values()
    assert asked_at == NOW.timestamp() + 1


async def test_who_may_not_list_nodes_still_learns_why_a_copy_stays():
    kube = PlayedKube(modelversions=[version()], cachenodes=[a_holder(specs=[entry_spec()])])

    async def refuse(_resource, _namespace=None, **_selectors):
        raise Forbidden("403: cachenodes is forbidden", code=403)

    kube.list = refuse
    with pytest.raises(CliError, match=r"counts on it for minReady.*you may not list cachenodes"):
        await evict(kube, "n1")


@pytest.mark.parametrize(
    ("spec", "fields", "said"),
    [
        ({"pinned": True}, {}, "a ModelCache pins it"),
        ({}, {}, "the operator counts on it"),
        ({"evictable": True}, {"mounts": 3}, "volumes of 3 pods use it"),
    ],
)
async def test_what_another_namespace_needs_of_the_same_bytes_keeps_them(spec, fields, said):
    holder = a_holder(
        specs=[*FREE, entry_spec("u2", **spec)], entries=[HELD, entry("u2", **fields)]
    )
    with pytest.raises(
        CliError, match=f"another ModelVersion has the same bytes there, and {said}"
    ):
        await ask(holder)
    other = entry("u2", contentDigest=digest("d"), **fields)
    await ask(a_holder(specs=[*FREE, entry_spec("u2", **spec)], entries=[HELD, other]))


def test_the_command_says_it_for_each_node_and_fails_if_one_stays(monkeypatch):
    kube = PlayedKube(modelversions=[version()], cachenodes=[a_holder()])

    @asynccontextmanager
    async def open_played(choice):
        yield kube, choice.namespace or "search"

    monkeypatch.setattr(change_commands, "open_cluster", open_played)
    stays = CliRunner().invoke(app, ["evict", "m1", "--node", "n1", "--timeout", "0s"])
    assert (stays.exit_code, stays.stdout[:32]) == (1, "node n1: still there, asked no m")
    document = CliRunner().invoke(app, ["evict", "m1", "--node", "n1", "--timeout=0s", "-ojson"])
    assert json.loads(document.stdout)["evictions"][0]["gone"] is False
    absent = CliRunner().invoke(app, ["evict", "m2", "--node", "n1"])
    assert (absent.exit_code, absent.stderr[:33]) == (1, "error: there is no ModelVersion '")
