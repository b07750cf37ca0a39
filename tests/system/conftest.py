"""Whole systems on the test bed; one world for each module."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from fakes.denials import find_denied
from fakes.world import World
from modelcache_testbed.system import NAMESPACE, System


def make_world(request, cluster, seaweed, tmp_path_factory, **options) -> World:
    name = re.sub(r"[^a-z0-9]+", "-", request.module.__name__.rpartition("test_")[2].lower())[:20]
    system = System(cluster, tmp_path_factory.mktemp(name))
    system.install()
    system.add_operator(extra=("--lease-list-interval=1s", *options.get("operator", ())))
    return World(cluster, seaweed, system, name.strip("-"))


@pytest.fixture(scope="module")
def world(request, cluster, seaweed, tmp_path_factory) -> Iterator[World]:
    """Operator and two agents; nodes n1 and n2."""
    position = cluster.audit.position()
    world = make_world(request, cluster, seaweed, tmp_path_factory)
    try:
        for suffix in ("n1", "n2"):
            world.add_node(suffix)
        yield world
    finally:
        world.close()
    assert_C53_nothing_was_denied(cluster, position)


def assert_C53_nothing_was_denied(cluster, position: int) -> None:
    """The roles are neither a letter short nor guessed: no request of ours was refused."""
    assert find_denied(cluster, position, NAMESPACE) == []
