from __future__ import annotations

import secrets

import pytest

from fakes.fault_proxy import FaultProxy
from fakes.fetch_world import S3World
from fakes.range_server import RangeServer
from modelcache_testbed.bucket import Bucket


@pytest.fixture(scope="session")
def bucket(seaweed):
    return Bucket(seaweed, "fetch")


@pytest.fixture
def s3_proxy(seaweed):
    host, _, port = seaweed.endpoint.removeprefix("http://").partition(":")
    with FaultProxy((host, int(port))) as proxy:
        yield proxy


@pytest.fixture
def s3(bucket, s3_proxy):
    """Objects in a real store, read through the fault proxy."""
    return S3World(bucket, secrets.token_hex(4), s3_proxy.endpoint)


@pytest.fixture
def server():
    with RangeServer() as running:
        yield running


@pytest.fixture
def proxy(server):
    with FaultProxy(server.address) as running:
        yield running
