"""Whether a version that is resolved may be held at all."""

from __future__ import annotations

from typing import Final

from modelcache_api.names import Condition, Reason
from modelcache_api.v1alpha1.model_version import OnSourceGone
from modelcache_operator.decide.pin import describe_conflict
from modelcache_operator.decide.world import ModelVersionView

DROPPED: Final = "spec.onSourceGone is Drop, so its copies are taken from the nodes"


def describe_withdrawal(version: ModelVersionView) -> tuple[Reason, str] | None:
    """Why the version is held and granted nowhere; None if nothing speaks against it."""
    if conflict := describe_conflict(version):
        return Reason.DIGEST_MISMATCH, conflict
    if version.spec.on_source_gone is not OnSourceGone.DROP:
        return None
    for item in version.status.conditions:
        is_known = item.type == Condition.SOURCE_CURRENT and item.status == "False"
        if is_known and item.reason == Reason.SOURCE_GONE:
            return Reason.SOURCE_GONE, f"its source is gone, and {DROPPED}"
    return None
