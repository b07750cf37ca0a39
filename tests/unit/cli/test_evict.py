"""`kubectl modelcache evict`: whom it asks, and what it says."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

from builders import NOW
from fakes.played_objects import PlayedKube, entry, entry_spec, node, version
from modelcache_agent.adapters.kube_cluster import read_dismissals
from modelcache_cli import change_commands
from modelcache_cli.__main__ import app
from modelcache_cli.errors import CliError
from modelcache_cli.evicting import ask_to_evict, watch_evictions
from modelcache_operator.decide.world import ObjectKey

KEY = ObjectKey("search", "m1")
FREE = [entry_spec(evictable=True)]


def a_holder(name="n1", specs=FREE, entries=None, **fields):
    return node(name, specs=specs, entries=[entry()] if entries is None else entries, **fields)


async def ask(*nodes, names=("n1",)):
    kube = PlayedKube(modelversions=[version()], cachenodes=nodes)
    return kube, await ask_to_evict(kube, KEY, names, NOW)


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
        await ask_to_evict(kube, KEY, ("n1", "n2"), NOW)
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


async def watch(*states):
    """Node n1 through these states, one for each look; the last one stays."""
    kube = PlayedKube(cachenodes=[a_holder()])
    left = list(states)

    async def sleep(_seconds):
        show()

    def show():
        entries = [] if left[0] is None else [entry(state=left[0])]
        kube.objects["cachenodes"] = [a_holder(entries=entries)]
        if len(left) > 1:
            left.pop(0)

    show()
    (outcome,) = await watch_evictions(kube, "u1", ["n1"], 3, sleep)
    return outcome, kube.asked["cachenodes"]


@pytest.mark.parametrize(
    ("states", "told", "looks"),
    [
        (["Cached", "Evicted"], "evicted; it comes back when a pod asks", 2),
        (["Cached", None], "evicted, and not wanted there any more", 2),
        (["Downloading"], "evicted, and Downloading anew", 1),
    ],
)
async def test_it_is_waited_for(states, told, looks):
    outcome, asked = await watch(*states)
    assert (outcome.is_gone, outcome.told, asked) == (True, told, looks)


async def test_what_stays_is_said_when_the_time_is_over():
    outcome, asked = await watch("Cached")
    assert (outcome.is_gone, asked) == (False, 4)
    assert outcome.told.startswith("asked, and still there: a process has it open")


def test_the_command_says_it_for_each_node_and_fails_if_one_stays(monkeypatch):
    kube = PlayedKube(modelversions=[version()], cachenodes=[a_holder()])

    @asynccontextmanager
    async def open_played(choice):
        yield kube, choice.namespace or "search"

    monkeypatch.setattr(change_commands, "open_cluster", open_played)
    stays = CliRunner().invoke(app, ["evict", "m1", "--node", "n1", "--timeout", "0s"])
    assert (stays.exit_code, stays.stdout[:32]) == (1, "node n1: asked, and still there:")
    document = CliRunner().invoke(app, ["evict", "m1", "--node", "n1", "--timeout=0s", "-ojson"])
    assert json.loads(document.stdout)["evictions"][0]["gone"] is False
    absent = CliRunner().invoke(app, ["evict", "m2", "--node", "n1"])
    assert (absent.exit_code, absent.stderr[:33]) == (1, "error: there is no ModelVersion '")
