from __future__ import annotations

import pytest

from fakes.agent_bench import Bench
from fakes.hub_door import HubDoor
from fakes.hub_node import HubNode
from fakes.hub_server import HubServer
from fakes.played_cluster import PlayedCluster
from fakes.source_world import (
    FakeKeyedData,
    make_hub_sources,
    make_sources,
    make_web_sources,
)
from fakes.web_sites import StaticSite, WebServer


@pytest.fixture
def data():
    """Secrets and ConfigMaps; `keys` holds credentials that any stub takes."""
    own = FakeKeyedData()
    own.put_credentials("keys", "AKEXAMPLE", "not-a-secret")
    own.put_secret("hub", HF_TOKEN="hf_example")
    return own


@pytest.fixture
async def sources(data):
    own = make_sources(data)
    yield own
    await own.close()


@pytest.fixture
def hub():
    """A stand-in for the hub, with its CDN."""
    with HubServer() as running:
        yield running


@pytest.fixture
async def hub_sources(data):
    own = make_hub_sources(data)
    yield own
    await own.close()


@pytest.fixture
async def node(hub, data, tmp_path):
    """An agent that the operator gives leave to read from the hub."""
    sources = make_hub_sources(data)
    door = HubDoor(sources)
    await door.open()
    (tmp_path / "store").mkdir()
    yield HubNode(hub, door, Bench(tmp_path / "store", door, None, PlayedCluster()), tmp_path)
    await door.close()
    await sources.close()


@pytest.fixture
def web():
    """A stand-in for a plain web server."""
    with WebServer() as running:
        yield running


@pytest.fixture
def site(tmp_path):
    """A real web server over the folder `site`."""
    folder = tmp_path / "site"
    folder.mkdir()
    with StaticSite(folder) as running:
        yield running


@pytest.fixture
async def web_sources(data):
    own = make_web_sources(data)
    yield own
    await own.close()
