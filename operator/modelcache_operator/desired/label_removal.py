"""The patch that takes labels off a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from modelcache_api.names import NODE_LABEL_PREFIX
from modelcache_operator.decide.world import NodeView


def build_label_removal(node: NodeView, keys: Iterable[str]) -> dict[str, Any]:
    """A merge patch of nulls for keys of our prefix; the UID guards a rebuilt node's labels.

    Raises:
        ValueError: a key is not ours.
    """
    removed = dict.fromkeys(sorted(keys))
    if foreign := [key for key in removed if not key.startswith(NODE_LABEL_PREFIX)]:
        raise ValueError(f"not our labels: {foreign}")
    return {"metadata": {"uid": node.uid, "labels": removed}}
