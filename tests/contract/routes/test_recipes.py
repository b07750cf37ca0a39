"""What docs/rollouts.md shows: manifests that parse, and our part of the recipes as it runs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
import yaml

from contract.crds.objects import CONDITION
from fakes.http_routes import CANARY, STABLE, weights_of
from modelcache_kube import HTTP_ROUTES, MODEL_CACHES, Invalid
from modelcache_operator.decide.route import decide_route, find_wish
from modelcache_operator.adapters.parsing import ObservedKind, parse_object
from modelcache_operator.decide.world import ObjectKey

PAGE = Path(__file__).parents[3] / "docs" / "rollouts.md"
CRDS = Path(__file__).parents[3] / "crds"


def manifests() -> list[dict]:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [found for block in blocks for found in yaml.safe_load_all(block)]


def of_kind(kind: str) -> list[dict]:
    return [found for found in manifests() if found["kind"] == kind]
