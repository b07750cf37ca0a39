"""Cases that show only among many: `make fleet-nightly`, and nothing else, collects them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from fakes.fleet_stage import FleetStage, open_fleet
from modelcache_testbed.system import System

NODES = int(os.environ.get("MODELCACHE_FLEET_NODES", "1000"))
CACHES = int(os.environ.get("MODELCACHE_FLEET_CACHES", "200"))
# A machine that plays a thousand agents is late with their renewals, which is no fault of theirs.
PATIENT = "--agent-lost-after=300s"


def pytest_ignore_collect(config):
    return None if config.option.markexpr == "fleet" else True


@pytest.fixture(scope="module")
def system(cluster, seaweed, tmp_path_factory) -> Iterator[System]:
    """An installed system with two replicas of the operator."""
    system = System(cluster, tmp_path_factory.mktemp("system"))
    system.install()
    system.add_operator("operator-0", extra=(PATIENT,))
    system.add_operator("operator-1", extra=(PATIENT,), primary=False)
    try:
        yield system
    finally:
        system.remove()


@pytest.fixture
async def stage(cluster, seaweed, system) -> AsyncIterator[FleetStage]:
    """A namespace, and nodes in pools with played agents."""
    async with open_fleet(cluster, seaweed, system, NODES, CACHES) as stage:
        yield stage
