"""The status of a ModelCacheQuota, and what people are told of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from modelcache_api import names
from modelcache_api.conditions import Verdict, merge_conditions
from modelcache_api.names import Condition, Reason
from modelcache_api.quantities import format_bytes
from modelcache_api.v1alpha1.model_cache_quota import ModelCacheQuotaStatus, QuotaUsage
from modelcache_operator.decide.events import EventNote, Regarding, tell_transition
from modelcache_operator.decide.quota import Item, Limits, is_over
from modelcache_operator.decide.world import ModelCacheQuotaView, ModelCacheView

_WORD: Final = Reason.QUOTA_EXCEEDED.value


def make_quota_status(
    quota: ModelCacheQuotaView,
    limits: Limits,
    charged: Mapping[Item, int],
    caches: Iterable[ModelCacheView],
    now: datetime,
) -> ModelCacheQuotaStatus:
    """The whole status. `caches` are those of the namespace."""
    over = is_over(limits, charged)
    told = ", ".join(f"{_share(limits, charged, item)} of {item}" for item in limits.hard)
    message = f"used of granted: {told}"
    if over:
        message += (
            "; nothing new is placed, and what pods use or is verified stays: delete ModelCaches, "
            "lower copies, or raise the quota"
        )
    reason = Reason.QUOTA_EXCEEDED if over else Reason.WITHIN_QUOTA
    verdicts = (
        Verdict(Condition.READY, not over, reason, message),
        Verdict(Condition.RECONCILING, status=False, reason=reason, message=message),
        Verdict(Condition.STALLED, over, reason, message),
    )
    return ModelCacheQuotaStatus(
        observed_generation=quota.generation,
        used=QuotaUsage(
            disk_bytes=charged[Item.DISK],
            host_bytes=charged[Item.HOST],
            gpu_bytes=charged[Item.GPU],
            pinned_bytes=charged[Item.PINNED],
        ),
        disk=_share(limits, charged, Item.DISK),
        host=_share(limits, charged, Item.HOST),
        gpu=_share(limits, charged, Item.GPU),
        pinned=_share(limits, charged, Item.PINNED),
        refused=sum(is_refused(cache) for cache in caches),
        conditions=merge_conditions(
            quota.status.conditions, verdicts, generation=quota.generation, now=now
        ),
    )


def is_refused(cache: ModelCacheView) -> bool:
    """True if the ModelCache's status says that a quota keeps it from copies or from a canary."""
    told = (
        (item.reason, item.message)
        for item in cache.status.conditions
        if item.type in {Condition.READY, Condition.ROLLOUT_PROGRESSING}
    )
    return any(reason == _WORD or f"{_WORD}: " in message for reason, message in told)


def quota_events(
    quota: ModelCacheQuotaView, became: ModelCacheQuotaStatus
) -> tuple[EventNote, ...]:
    """What to tell after the status has been written: that more is used than granted, or not."""
    key = quota.key
    regarding = Regarding(names.KIND_MODEL_CACHE_QUOTA, key.namespace, key.name, quota.uid)
    if not quota.status.conditions and became.conditions[0].status == "True":
        return ()
    return tell_transition(regarding, quota.status.conditions, became.conditions)


def _share(limits: Limits, charged: Mapping[Item, int], item: Item) -> str:
    hard = limits.hard.get(item)
    return f"{format_bytes(charged[item])}/{'-' if hard is None else format_bytes(hard)}"
