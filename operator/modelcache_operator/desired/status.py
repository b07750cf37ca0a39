"""Status bodies of users' objects, whole. The UID guards against a successor of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelcache_api.v1alpha1.base import ApiModel
from modelcache_operator.decide.world import ModelCacheQuotaView, ModelCacheView, ModelVersionView


def build_status(
    view: ModelVersionView | ModelCacheView | ModelCacheQuotaView, status: ApiModel
) -> dict[str, Any]:
    """For server-side apply to the status subresource: what is not in it is taken back."""
    return {
        "metadata": {"name": view.key.name, "namespace": view.key.namespace, "uid": view.uid},
        "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def build_removals(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """For a merge patch: what else is in the status that was found. Empty if there is nothing.

    Server-side apply takes back what we once wrote, and never what somebody else did.
    """
    removals: dict[str, Any] = {}
    for name, value in found.items():
        if name not in wanted:
            removals[name] = None
        elif isinstance(value, Mapping) and isinstance(wanted[name], Mapping):
            if inner := build_removals(value, wanted[name]):
                removals[name] = inner
        elif value != wanted[name]:
            removals[name] = wanted[name]
    return removals
