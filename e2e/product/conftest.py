"""The product as docs/tutorial.md leaves it before it takes everything away."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelcache_testbed import Cluster, LocalCluster
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.images.build import built_archives
from modelcache_testbed.product import Product

UNTIL = "Restart the agents"
# As a team would live through it; each leaves the product as the next one wants it.
STORY = (
    "pods",
    "peers",
    "libraries",
    "host",
    "rollouts",
    "namespaces",
    "get",
    "refusals",
    "day_two",
    "restarts",
    "node_life",
    "rollout",
    "uninstall",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the modules of this folder into the order of the story."""
    here = Path(__file__).parent
    places = [n for n, item in enumerate(items) if item.path.parent == here]
    ours = [items[n] for n in places]
    ours.sort(key=lambda item: STORY.index(item.path.stem.removeprefix("test_")))
    for place, item in zip(places, ours, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def product(nodes_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Product:
    """Follow the tutorial until pods read the model."""
    if not isinstance(nodes_cluster, LocalCluster):
        pytest.skip("these tests install, rebuild nodes and uninstall: they need a cluster of ours")
    try:
        built_archives()
    except TestbedError as error:
        pytest.skip(str(error))
    product = Product(nodes_cluster, tmp_path_factory.mktemp("product"))
    product.load_images()
    for title in product.titles[: product.titles.index(UNTIL)]:
        product.follow(title)
    return product


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")
