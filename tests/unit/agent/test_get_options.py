"""The page of `modelcache-agent get`: each option with its default, images of any cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from modelcache_agent.config import ConfigError
from modelcache_agent.get.program import OPTIONS, read_name

PAGE = Path(__file__).parents[3] / "docs" / "get.md"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_page_has_the_option_and_its_default(option):
    page = PAGE.read_text()
    rows = [row for row in page.splitlines() if row.startswith("|")]
    spelling = "NAME" if option.is_positional else option.spelling
    (row,) = [row for row in rows if f"`{spelling}`" in row]
    default = (option.default or "").removeprefix("/var/run/secrets/modelcache/")
    assert default in row


@pytest.mark.parametrize(
    ("chosen", "images"),
    [
        ({}, ["modelcache/agent:0.1.0", "modelcache.io/testbed/busybox:1"]),
        (
            {"REGISTRY": "registry.example/ml", "BUSYBOX": "busybox"},
            ["registry.example/ml/modelcache/agent:0.1.0", "busybox"],
        ),
    ],
)
def test_its_pod_has_the_images_that_the_tutorial_had_one_choose(chosen, images):
    (block,) = [one for one in PAGE.read_text().split("```console\n") if "kind: Pod" in one]
    script = f'kubectl() {{ [ "$1" != apply ] || cat; }}\n{block.partition("```")[0]}'
    pod = yaml.safe_load(subprocess.check_output(["bash", "-euc", script], env=chosen, text=True))
    spec = pod["spec"]
    assert [one["image"] for one in [*spec["initContainers"], *spec["containers"]]] == images


@pytest.mark.parametrize(
    ("given", "cache", "read"),
    [
        ("m1", None, (None, "m1", None)),
        ("search/m1", None, ("search", "m1", None)),
        (None, "c1", (None, None, "c1")),
        (None, "search/c1", ("search", None, "c1")),
    ],
)
def test_a_name_may_have_its_namespace_before_it(given, cache, read):
    asked = read_name(given, cache)
    assert (asked.namespace, asked.model_version, asked.model_cache) == read


@pytest.mark.parametrize("given", ["/m1", "search/", "a/b/c", "m" * 300, "M1", "m1\n", "-m"])
def test_what_is_no_name_is_refused(given):
    with pytest.raises(ConfigError, match="is no name"):
        read_name(given, None)
