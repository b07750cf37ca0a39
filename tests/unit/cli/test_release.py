"""`kubectl modelcache --version`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from fakes.played_objects import PlayedKube
from modelcache_cli import release
from modelcache_cli.__main__ import app
from modelcache_cli.release import tell_releases

OURS = f"kubectl-modelcache {version('modelcache')}\n"
OPERATOR = {
    "metadata": {
        "name": "modelcache-operator",
        "namespace": "modelcache-system",
        "labels": {"app.kubernetes.io/version": "0.2.0"},
    }
}


def play(monkeypatch, kube):
    @asynccontextmanager
    async def open_played(_choice):
        yield kube, "default"

    monkeypatch.setattr(release, "open_cluster", open_played)


@pytest.mark.parametrize(
    ("kube", "told"),
    [
        pytest.param(PlayedKube(deployments=[OPERATOR]), "operator 0.2.0\n", id="known"),
        pytest.param(PlayedKube(), "", id="not installed"),
        pytest.param(PlayedKube(forbidden=["deployments"]), "", id="not to be read"),
    ],
)
def test_the_operators_release_is_told_where_the_cluster_tells_it(monkeypatch, kube, told):
    play(monkeypatch, kube)
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{OURS}{told}", "")


def test_without_a_cluster_the_plugins_own_release_is_told():
    result = CliRunner().invoke(app, ["--version"], env={"KUBECONFIG": "/nowhere"})
    assert (result.exit_code, result.stdout, result.stderr) == (0, OURS, "")


async def test_a_cluster_that_hangs_is_not_waited_for(monkeypatch):
    kube = PlayedKube()

    async def hang(*_arguments):
        await asyncio.sleep(60)

    kube.get = hang
    play(monkeypatch, kube)
    assert await tell_releases(0.01) == OURS
