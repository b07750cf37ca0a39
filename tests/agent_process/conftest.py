"""An agent process under its own role on a real API server."""

from __future__ import annotations

import secrets

import pytest

from fakes.grants_server import GrantsServer
from fakes.played_agent import PlayedAgent
from fakes.range_server import RangeServer
from modelcache_testbed.system import System


@pytest.fixture(scope="module")
def installed(cluster, tmp_path_factory):
    System(cluster, tmp_path_factory.mktemp("system")).install()
    return cluster


@pytest.fixture
def agent(installed, tmp_path):
    name = f"played-{secrets.token_hex(3)}"
    with (
        RangeServer() as objects,
        GrantsServer(lambda uid, path: objects.url(f"{uid}/{path}")) as g,
    ):
        agent = PlayedAgent(installed, name, tmp_path / name, g, objects)
        agent.prepare()
        try:
            yield agent
        finally:
            agent.close()
