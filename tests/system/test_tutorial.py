"""docs/tutorial.md by somebody who has nothing else, on played nodes: what needs no container.

Commands run as they stand there, but for where this store is and its keys. `e2e/product` follows
all of them on real nodes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fakes.world import World
from modelcache_testbed.models import make_model
from modelcache_testbed.product import TEAM
from modelcache_testbed.tutorial import TUTORIAL, Section, build_environment, read_sections

pytestmark = pytest.mark.cluster

ENDPOINT = "http://seaweed.storage:8333"
SIZE_BYTES = 3_000_000
# Pods of the test bed's store and of the reader's Deployment are what is not played.
_FORWARD = re.compile(r"^kubectl .* port-forward .*\ntrap .*\n", re.MULTILINE)


class Reader:
    """Whoever follows the page, section by section."""

    def __init__(self, world: World, folder: Path) -> None:
        self._sections = {one.title: one.blocks for one in read_sections(TUTORIAL.read_text())}
        store = world.store
        self._here = {
            ENDPOINT: store.endpoint,
            "tutorial:only-for-this-tutorial": f"{store.access_key}:{store.secret_key}",
            "ACCESS_KEY_ID: tutorial": f"ACCESS_KEY_ID: {store.access_key}",
            "ACCESS_KEY: only-for-this-tutorial": f"ACCESS_KEY: '{store.secret_key}'",
        }
        model = folder / "model"
        for path, body in make_model(SIZE_BYTES, seed=9).items():
            (model / path).parent.mkdir(parents=True, exist_ok=True)
            (model / path).write_bytes(body)
        self._environment = build_environment(
            world.cluster.kubeconfig,
            folder,
            MODEL=str(model),
            PORT=store.endpoint.rpartition(":")[2],
        )

    def follow(self, title: str, block: int = 0) -> str:
        """What one block of commands prints."""
        commands = _FORWARD.sub("", self._sections[title][block])
        for told, here in self._here.items():
            commands = commands.replace(told, here)
        return Section(title, (commands,)).run(self._environment)


@pytest.fixture(scope="module")
def reader(world: World, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    # The page makes this namespace; it goes with the world.
    world.namespaces.append(TEAM)
    return Reader(world, tmp_path_factory.mktemp("reader"))


def row(said: str, name: str) -> list[str]:
    """The cells of a table's line."""
    (found,) = [line.split() for line in said.splitlines() if line.split()[:1] == [name]]
    return found


def test_a_model_is_put_into_a_bucket_and_cached_on_two_nodes(reader: Reader, world: World) -> None:
    reader.follow("A bucket with a model", block=1)
    said = reader.follow("Cache it")
    assert row(said, "minilm")[1:4] == ["minilm-v1", "2/2", "Disk"]
    assert {row(said, node)[-1] for node in world.nodes} == {"disk"}


def test_the_command_line_says_that_all_is_well(reader: Reader, world: World) -> None:
    said = reader.follow("Look at it")
    assert "everything is as it should be" in said
    assert f"modelcache {TEAM}/minilm: Cached" in said
    assert all(row(said, node)[1] == "True" for node in world.nodes)


def test_a_second_version_takes_a_share_goes_back_and_is_promoted_without_another_byte(
    reader: Reader, world: World
) -> None:
    both = set(world.nodes)
    said = reader.follow("Roll out a second version")
    assert row(said, "minilm")[1:5] == ["minilm-v1", "minilm-v2", "75/25", "2/2"]
    world.wait(lambda: world.warm_nodes(TEAM, "minilm-v2") == both, "labels of both versions")
    trees = {node: world.trees(node) for node in world.nodes}
    assert all(sum("training.json" in tree for tree in one.values()) == 1 for one in trees.values())
    world.store.stop()
    try:
        assert row(reader.follow("Go back"), "minilm")[1:3] == ["minilm-v1", "2/2"]
        assert row(reader.follow("Promote"), "minilm")[1:3] == ["minilm-v2", "2/2"]
        world.wait(lambda: world.warm_nodes(TEAM, "minilm-v2") == both, "the promoted one's labels")
        said = reader.follow("Go back after a promotion")
        world.wait(lambda: world.warm_nodes(TEAM, "minilm-v1") == both, "the first one's labels")
    finally:
        world.store.start()
    assert {"WeightReached", "Held"} <= set(said.split())
    assert {node: world.trees(node) for node in world.nodes} == trees
