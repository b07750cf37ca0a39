"""`kubectl modelcache status` and `top`: what they count, and how they show it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
import yaml
from typer.testing import CliRunner

from fakes.played_objects import PlayedKube, book, cache, condition, entry, node, quota, version
from modelcache_api.names import Tier
from modelcache_cli import cluster, overview_commands
from modelcache_cli.__main__ import app
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import observe_fleet
from modelcache_cli.output import Format, View, render
from modelcache_cli.status import render_status, summarise
from modelcache_cli.top import list_models, list_nodes, render_models, render_nodes
from modelcache_kube import ApiUnavailable, NotFound

FAILED = entry("u2", "Failed", reason="AuthFailed", message="403")
ALMOST_FULL = book(used=90 << 30, reservedBytes=1 << 30, pressure="92 % are used")
FLEET = {
    "cachenodes": [
        node("n1", entries=[entry(mounts=2), entry("u2", "Downloading", progressPercent=40)]),
        node(
            "n2",
            tiers=[ALMOST_FULL, book("Host", 8 << 30, 4 << 30)],
            entries=[entry(tier="Host"), FAILED],
        ),
        node("n3", alive=False, entries=[entry()]),
    ],
    "modelversions": [
        version(),
        version("m2", uid="u2", sizeBytes=3 << 30),
        version("x", "other", "u3"),
    ],
    "modelcaches": [
        cache(),
        cache(
            "m2",
            conditions=[condition("Ready", "False", "Degraded", "1 failed: AuthFailed: 403")],
            copies={"wanted": 2, "ready": 1},
        ),
    ],
    "modelcachequotas": [quota()],
}


def squeeze(line):
    """The line with one space between its cells."""
    return " ".join(line.split())


async def fleet(namespace="search", **changes):
    return await observe_fleet(PlayedKube(**{**FLEET, **changes}), namespace)


async def test_status_counts_nodes_tiers_and_copies_and_names_what_is_not_right():
    found = summarise(await fleet())
    assert found["nodes"] == {"total": 3, "ready": 2, "copies": 2, "fetching": 1, "failed": 1}
    disk, host = found["tiers"]
    assert (disk["nodes"], disk["usedBytes"], disk["capacityBytes"]) == (2, 115 << 30, 200 << 30)
    assert (host["nodes"], host["usedBytes"]) == (1, 4 << 30)
    assert found["modelVersions"] == {"total": 2, "ready": 2}
    assert [(one["name"], one["ready"]) for one in found["modelCaches"]] == [
        ("m", True),
        ("m2", False),
    ]
    told = {one["object"]: (one["reason"], one["cure"]) for one in found["findings"]}
    assert set(told) == {"node n2", "node n3", "modelcache search/m2"}
    assert told["node n3"][0] == "NodeLost"
    assert told["modelcache search/m2"] == (
        "Degraded",
        "correct the Secret, or the permissions of its account",
    )


async def test_status_is_a_page_for_people():
    page = render_status(summarise(await fleet()), wide=False)
    assert page.startswith("nodes: 2 of 3 ready; copies: 2 verified, 1 under way, 1 failed\n")
    assert "Disk  2      115Gi  200Gi     57%    1Gi" in page
    (line,) = [line for line in page.splitlines() if line.startswith("search") and "m2" in line]
    assert line.split() == ["search", "m2", "m1", "1/2", "Disk", "1Gi", "Degraded"]
    assert page.splitlines()[-1].startswith("modelcache search/m2: Degraded: 1 failed: ")
    assert "RETENTION" in render_status(summarise(await fleet()), wide=True)


async def test_where_all_is_well_status_says_so():
    found = await fleet(cachenodes=[node()], modelcaches=[cache()])
    assert render_status(summarise(found), wide=False).endswith("\neverything is as it should be\n")


async def test_where_nothing_is_seen_status_does_not_say_that_all_is_well():
    well = {"modelcaches": [cache()], "modelversions": [version()], "modelcachequotas": []}
    kube = PlayedKube(["cachenodes"], **well)
    page = render_status(summarise(await observe_fleet(kube, "search")), wide=False)
    assert page.endswith("\nof what you may see nothing is wrong\n")
    page = render_status(summarise(await fleet(**well, cachenodes=[])), wide=False)
    assert page.splitlines()[-1].startswith(
        "nodes: NoAgent: no agent has reported from any node; cure: "
    )


async def test_who_may_not_list_nodes_still_sees_the_rest():
    found = await observe_fleet(PlayedKube(["cachenodes"], **FLEET), "search")
    document = summarise(found)
    assert (document["nodes"], document["tiers"]) == (None, None)
    page = render_status(document, wide=False)
    assert page.startswith("nodes: unknown: you may not list cachenodes\n")
    assert "m2" in page
    assert render_nodes(list_nodes(found), wide=False) == page.splitlines()[0] + "\n"
    assert render_models(list_models(found), wide=False) == page.splitlines()[0] + "\n"


async def test_top_lists_the_fullest_node_first_with_the_book_of_each_tier():
    found = list_nodes(await fleet())
    assert [one["name"] for one in found["nodes"]] == ["n2", "n1", "n3"]
    first = found["nodes"][0]
    assert (first["models"], first["failed"], first["ready"]) == (1, 1, True)
    table = render_nodes(found, wide=False).splitlines()
    assert squeeze(table[0]) == "NODE READY DISK HOST GPU MODELS FETCHING FAILED MOUNTS"
    assert squeeze(table[1]) == "n2 True 90Gi/100Gi 90% 4Gi/8Gi 50% - 1 0 1 0"
    assert "92 % are used" in render_nodes(found, wide=True)


async def test_top_counts_a_model_in_each_tier_that_holds_it_on_living_nodes():
    found = list_models(await fleet())
    assert [one["name"] for one in found["models"]] == ["m1", "m2"]
    first, second = found["models"]
    assert first["nodes"] == {"Disk": 2, "Host": 1, "GPU": 0}
    assert (first["diskBytes"], first["mounts"]) == (2 << 30, 2)
    assert (second["fetching"], second["slowestPercent"], second["failed"]) == (1, 40, 1)
    table = render_models(found, wide=False).splitlines()
    assert squeeze(table[2]) == "search m2 3Gi 0 0 0 0 1 (40%) 1 0 0"


async def test_all_namespaces_are_listed_on_request():
    assert len(list_models(await fleet(None))["models"]) == 3


async def test_an_object_of_another_release_is_no_traceback():
    strange = version()
    strange["spec"] = {"source": {}}
    with pytest.raises(
        CliError, match=r"ModelVersion m1 is not what this release knows \(spec\.model"
    ):
        await fleet(modelversions=[strange])


def test_words_of_enumerations_are_plain_words_in_every_document():
    document = {"tier": Tier.DISK, "bytes": 1}
    assert yaml.safe_load(render(document, Format.YAML)) == {"tier": "Disk", "bytes": 1}
    assert json.loads(render(document, Format.JSON)) == {"tier": "Disk", "bytes": 1}


@pytest.fixture
def played(monkeypatch):
    """The commands over played objects; the context's namespace is `search`."""
    kube = PlayedKube(**FLEET)

    @asynccontextmanager
    async def open_played(choice):
        yield kube, choice.namespace or "search"

    monkeypatch.setattr(overview_commands, "open_cluster", open_played)
    return kube


@pytest.mark.parametrize("command", ["status", "top", "top models"])
@pytest.mark.usefixtures("played")
def test_json_and_yaml_say_the_same_and_tables_have_no_control_characters(command):
    def ask(view):
        result = CliRunner().invoke(app, [*command.split(), "-o", view])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert json.loads(ask(View.JSON)) == yaml.safe_load(ask(View.YAML))
    for view in (View.TABLE, View.WIDE):
        assert all(char.isprintable() or char == "\n" for char in ask(view))


@pytest.mark.usefixtures("played")
def test_a_namespace_narrows_and_minus_a_widens():
    def models(*flags):
        result = CliRunner().invoke(app, ["top", "models", "-ojson", *flags])
        return {one["name"] for one in json.loads(result.stdout)["models"]}

    assert (models(), models("-n", "other"), models("-A")) == (
        {"m1", "m2"},
        {"x"},
        {"m1", "m2", "x"},
    )


def test_watching_prints_table_below_table_where_there_is_no_terminal(played, monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(overview_commands.asyncio, "sleep", sleep)
    result = CliRunner().invoke(app, ["top", "--watch", "--interval", "2"])
    assert result.exit_code == 0, result.output
    assert (slept, result.stdout.count("NODE "), played.asked["cachenodes"]) == ([2, 2], 2, 2)
    assert "\x1b" not in result.stdout


def test_watching_goes_on_after_a_request_that_failed(played, monkeypatch):
    slept, listed = [], played.list

    async def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    async def fail_once(*arguments, **selectors):
        if not slept:
            raise ApiUnavailable("503: no leader", code=503)
        return await listed(*arguments, **selectors)

    monkeypatch.setattr(overview_commands.asyncio, "sleep", sleep)
    played.list = fail_once
    result = CliRunner().invoke(app, ["top", "--watch"])
    assert (result.exit_code, result.stdout.count("NODE ")) == (0, 1)
    assert result.stderr == "note: 503: no leader\n"


@pytest.mark.parametrize("command", ["status", "top", "why m", "checklist", "verify m1"])
def test_a_cluster_without_modelcache_is_told_to_be_one(tmp_path, monkeypatch, command):
    class Empty(PlayedKube):
        async def get(self, resource, name, namespace=None):
            raise NotFound("404: 404 page not found", code=404)

        async def list(self, resource, namespace=None, **_selectors):
            raise NotFound("404: 404 page not found", code=404)

    @asynccontextmanager
    async def connect(_config):
        yield Empty()

    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(EMPTY_CONFIG)
    monkeypatch.setattr(cluster, "connect", connect)
    result = CliRunner().invoke(app, [*command.split(), "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 1
    assert result.stderr == (
        "error: this cluster does not serve modelcache.io/v1alpha1: install the chart, or choose "
        "another cluster by --context or --kubeconfig\n"
    )


EMPTY_CONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: c, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
"""


@pytest.mark.usefixtures("played")
def test_watching_is_for_tables():
    result = CliRunner().invoke(app, ["top", "-w", "-ojson"])
    assert (result.exit_code, result.stderr) == (
        1,
        "error: --watch shows tables: leave it out, or -o json and yaml\n",
    )
