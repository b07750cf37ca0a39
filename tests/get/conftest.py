"""A played operator and a small web server: everything but real tokens and a real store."""

from __future__ import annotations

import hashlib

import pytest

from fakes.fault_proxy import FaultProxy
from fakes.get_world import GetProgram
from fakes.grants_server import GrantedVersion, GrantsServer
from fakes.range_server import RangeServer, Served


@pytest.fixture
def objects():
    with RangeServer() as server:
        yield server


@pytest.fixture
def proxy(objects):
    with FaultProxy(objects.address) as running:
        yield running


@pytest.fixture
def grants(proxy):
    with GrantsServer(lambda uid, path: f"{proxy.endpoint}/{uid}/{path}") as server:
        yield server


@pytest.fixture
def add(objects, grants):
    """A ModelVersion of the pod's namespace."""

    def add(name, bodies, **granted):
        uid = f"uid-{name}"
        etag = hashlib.sha256(uid.encode()).hexdigest()
        version = grants.versions[uid] = GrantedVersion(bodies, etag=etag, **granted)
        grants.names[name] = uid
        for path, body in bodies.items():
            objects.objects[f"{uid}/{path}"] = Served.of(body, etag)
        return version

    return add


@pytest.fixture
def program(grants, tmp_path):
    token = tmp_path / "token"
    token.write_text("the pod's token")
    own = GetProgram(grants.url, grants.write_ca(tmp_path), token, tmp_path / "models")
    yield own
    own.close()
