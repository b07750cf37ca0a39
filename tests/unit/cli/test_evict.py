"""`kubectl modelcache evict`: whom it asks, and what it says."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager

import pytest
import typer
from typer.testing import CliRunner

from builders import NOW, digest
from fakes.played_objects import PlayedKube, entry, entry_spec, node, version
from modelcache_agent.adapters.kube_cluster import read_dismissals
from modelcache_cli import change_commands
from modelcache_cli.__main__ import app
from modelcache_cli.errors import CliError
from modelcache_cli.evicting import evict_copies, find_copies, watch_evictions
from modelcache_cli.options import run
from modelcache_cli.wishes import ask_to_evict
from modelcache_kube import ApiUnavailable, Forbidden
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


async def evict(kube, *names, seconds=3, sleep=None, notes=None):
    async def pass_on(_seconds):
        return None

    sleep, note = sleep or pass_on, (lambda _note: None) if notes is None else notes.append
    return await evict_copies(kube, KEY, names, seconds=seconds, note=note, sleep=sleep)


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
    assert outcome.told.startswith(f"asked no more; still there: {told}")


WISH = "evict.modelcache.io/u1"


class KeepingKube(PlayedKube):
    """Keeps what is written. Of nodes that `is_away` nothing can be read."""

    def __init__(self, *nodes):
        super().__init__(modelversions=[version()], cachenodes=nodes)
        self.is_away = lambda _node: False

    async def get(self, resource, name, namespace=None):
        if resource.plural == "cachenodes" and self.is_away(name):
            raise ApiUnavailable("503: starts anew", code=503)
        return await super().get(resource, name, namespace)

    async def merge_patch(self, resource, name, body, **options):
        merged = await super().merge_patch(resource, name, body, **options)
        self.put(merged)

    def put(self, node):
        held = self.objects["cachenodes"]
        name = node["metadata"]["name"]
        self.objects["cachenodes"] = [
            node if one["metadata"]["name"] == name else one for one in held
        ]

    def let_go(self, name):
        (found,) = [n for n in self.objects["cachenodes"] if n["metadata"]["name"] == name]
        self.put({**a_holder(name, entries=[GONE]), "metadata": found["metadata"]})

    @property
    def asked_nodes(self):
        return {
            node["metadata"]["name"]
            for node in self.objects["cachenodes"]
            if WISH in (node["metadata"].get("annotations") or {})
        }


async def test_whoever_stops_waiting_takes_the_wish_back():
    kube = KeepingKube(a_holder(), a_holder("n2"))

    async def stop(_seconds):
        assert kube.asked_nodes == {"n1", "n2"}
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await evict(kube, "n1", "n2", sleep=stop)
    assert kube.asked_nodes == set()
    back = {name: body["metadata"] for _, _, name, body, _ in kube.patches[2:]}
    assert back["n1"] == {"uid": "cn-n1", "annotations": {WISH: None}}
    outcomes = await evict(kube, "n1", seconds=0)
    assert [one.is_gone for one in outcomes] == [False]
    assert kube.asked_nodes == set()


async def test_an_api_server_that_is_away_for_a_while_ends_nothing():
    kube, looks = KeepingKube(a_holder()), []

    async def sleep(_seconds):
        looks.append(kube.asked_nodes)
        kube.is_away = lambda _node: len(looks) < 3
        if len(looks) == 2:
            kube.let_go("n1")

    (one,) = await evict(kube, "n1", seconds=9, sleep=sleep)
    assert one.told == "evicted; it comes back when a pod asks"
    assert (looks, kube.asked_nodes) == ([{"n1"}] * 3, set())


async def test_a_wish_is_taken_back_at_the_next_try_and_of_each_node_for_itself():
    kube, pauses, notes = KeepingKube(a_holder(), a_holder("n2")), [], []

    async def sleep(seconds):
        pauses.append(seconds)
        if pauses == [1.0]:
            kube.is_away = lambda node: node == "n1"
        await asyncio.sleep(0)
        if len(pauses) == 3:
            assert kube.asked_nodes == {"n1"}
            kube.is_away = lambda _node: False

    outcomes = await evict(kube, "n1", "n2", seconds=1, sleep=sleep, notes=notes)
    assert (kube.asked_nodes, notes, pauses) == (set(), [], [1.0, 1.0, 2.0])
    away, held = outcomes
    assert away.told == "asked no more; whether it is still there is not known: 503: starts anew"
    assert held.told.startswith("asked no more; still there: ")


async def test_a_wish_that_cannot_be_taken_back_is_told_with_its_end_and_masks_no_outcome():
    kube, looks, notes = KeepingKube(a_holder(), a_holder("n2")), [], []

    async def sleep(_seconds):
        looks.append(kube.asked_nodes)
        kube.let_go("n2")
        kube.is_away = lambda _node: len(looks) > 1

    kept, gone = await evict(kube, "n1", "n2", seconds=2, sleep=sleep, notes=notes)
    assert (gone.is_gone, gone.told) == (True, "evicted; it comes back when a pod asks")
    assert kept.told.startswith("may still be asked; whether it is still there is not known: 503")
    (note,) = notes
    assert note.startswith("node n1 may still be asked, until 13:00 UTC: ")
    assert "(503: starts anew); `kubectl annotate cachenode n1 evict.modelcache.io/u1-`" in note
    assert kube.asked_nodes == {"n1", "n2"}


async def test_whoever_interrupts_twice_still_learns_which_wish_stays():
    kube, looks, notes = KeepingKube(a_holder()), [], []

    async def sleep(_seconds):
        looks.append(kube.asked_nodes)
        kube.is_away = lambda _node: True
        if len(looks) < 3:
            asking.cancel()
            await asyncio.sleep(0)

    asking = asyncio.ensure_future(evict(kube, "n1", sleep=sleep, notes=notes))
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert notes[0].startswith("node n1 may still be asked, until 13:00 UTC: ")


async def test_the_wish_of_somebody_else_is_left_alone():
    kube = KeepingKube(a_holder())

    async def sleep(_seconds):
        kube.put(a_holder(metadata={"annotations": {WISH: "2026-02-01T12:00:09.000+00:00"}}))

    await evict(kube, "n1", seconds=1, sleep=sleep)
    assert kube.asked_nodes == {"n1"}


def test_a_command_that_is_told_to_stop_takes_back_what_it_began():
    kube = KeepingKube(a_holder())
    seen = []

    async def sleep(_seconds):
        seen.append(kube.asked_nodes)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(60)

    with pytest.raises(typer.Exit) as ended:
        run(evict(kube, "n1", seconds=60, sleep=sleep))
    assert (seen, kube.asked_nodes, ended.value.exit_code) == ([{"n1"}], set(), 143)


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
    assert (stays.exit_code, stays.stdout[:32]) == (1, "node n1: asked no more; still th")
    document = CliRunner().invoke(app, ["evict", "m1", "--node", "n1", "--timeout=0s", "-ojson"])
    assert json.loads(document.stdout)["evictions"][0]["gone"] is False
    absent = CliRunner().invoke(app, ["evict", "m2", "--node", "n1"])
    assert (absent.exit_code, absent.stderr[:33]) == (1, "error: there is no ModelVersion '")
