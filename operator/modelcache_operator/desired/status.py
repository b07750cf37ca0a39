"""Status bodies of users' objects, whole. The UID guards against a successor of the same name."""

from __future__ import annotations

from typing import Any

from modelcache_api.v1alpha1.base import ApiModel
from modelcache_operator.decide.world import ModelCacheView, ModelVersionView


def build_status(view: ModelVersionView | ModelCacheView, status: ApiModel) -> dict[str, Any]:
    """For server-side apply to the status subresource: what is not in it is taken back."""
    return {
        "metadata": {"name": view.key.name, "namespace": view.key.namespace, "uid": view.uid},
        "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
