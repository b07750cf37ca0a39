"""`pin`: retention and priority of a ModelCache, written as the person who asks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from modelcache_api.names import MANAGER_COMMAND_LINE, Priority, Reason, Retention
from modelcache_api.quantities import format_bytes
from modelcache_api.v1alpha1.model_cache_quota import ModelCacheQuota, ModelCacheQuotaStatus
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import SeenCache, parse_object, see_cache
from modelcache_kube import MODEL_CACHE_QUOTAS, MODEL_CACHES, Forbidden, KubeClient
from modelcache_operator.decide.quota import Item, join_limits, read_limits
from modelcache_operator.decide.world import ObjectKey

Object = Mapping[str, Any]
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class PinWish:
    """What is asked for. `priority` None: it stays as it is."""

    retention: Retention
    priority: Priority | None = None
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class PinPlan:
    """The fields to write, none if they are so already, and what the person should know."""

    fields: Mapping[str, str]
    told: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pinned:
    """The ModelCache as it is now, and what was done."""

    found: Object
    plan: PinPlan


async def pin_cache(kube: KubeClient, key: ObjectKey, wish: PinWish) -> Pinned:
    """Write what is wished into the spec. The operator acts on it as on any change.

    Raises:
        CliError: there is no such ModelCache, its quota does not grant it, or somebody else's
            tool would set it back.
    """
    found = await kube.get(MODEL_CACHES, key.name, key.namespace)
    if found is None:
        raise CliError(
            f"there is no ModelCache {key.name!r} in namespace {key.namespace!r}; "
            "`kubectl get modelcaches --all-namespaces` lists them"
        )
    try:
        quotas: Sequence[Object] | None = (await kube.list(MODEL_CACHE_QUOTAS, key.namespace)).items
    except Forbidden:
        quotas = None
    plan = plan_pin(found, quotas, wish)
    if plan.fields:
        # The uid keeps the change from a successor of the same name.
        body = {"metadata": {"uid": found["metadata"]["uid"]}, "spec": dict(plan.fields)}
        found = await kube.merge_patch(
            MODEL_CACHES,
            key.name,
            body,
            namespace=key.namespace,
            field_manager=MANAGER_COMMAND_LINE,
        )
    return Pinned(found, plan)


def plan_pin(found: Object, quotas: Sequence[Object] | None, wish: PinWish) -> PinPlan:
    """What to write. Pure. `quotas` None: they may not be listed.

    Raises:
        CliError: it is not granted, or would be set back.
    """
    seen = see_cache(found)
    wanted = {"retention": wish.retention.value}
    if wish.priority is not None:
        wanted["priority"] = wish.priority.value
    now = {"retention": seen.spec.retention.value, "priority": seen.spec.priority.value}
    fields = {name: value for name, value in wanted.items() if now[name] != value}
    if not fields:
        return PinPlan({}, f"modelcache {seen.key} is so already: {_tell(now | wanted)}")
    for name in fields:
        owners = sorted(find_appliers(found, name))
        if owners and not wish.is_forced:
            raise CliError(
                f"{', '.join(owners)} applies spec.{name} of ModelCache {seen.key} and would set "
                "it back: change it where that comes from, or give --force to have it until then"
            )
    notes = [
        f"what was applied with kubectl says spec.{name} itself: its next apply sets it back"
        for name in fields
        if _is_last_applied(found, name)
    ]
    notes += _check_quota(seen, quotas, wish, fields)
    told = f"modelcache {seen.key}: {_tell(now | wanted)}"
    if "retention" in fields and wish.retention is Retention.PINNED and _charge(seen):
        told += f"; {format_bytes(_charge(seen))} are charged as pinned"
    return PinPlan(fields, told, tuple(notes))


def _tell(fields: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(fields.items(), reverse=True))


def _check_quota(
    seen: SeenCache,
    quotas: Sequence[Object] | None,
    wish: PinWish,
    fields: Mapping[str, str],
) -> Iterator[str]:
    """Notes where it cannot be known.

    Raises:
        CliError: it is known not to be granted.
    """
    asks_more = (
        fields.get("retention") == Retention.PINNED
        or Priority(fields.get("priority", Priority.LOW)).rank > seen.spec.priority.rank
    )
    if not asks_more:
        return
    if not quotas:
        who = (
            "you may not list ModelCacheQuotas" if quotas is None else "there is no ModelCacheQuota"
        )
        yield (
            f"{who} in namespace {seen.key.namespace}: if the quota that holds does not grant it, "
            f"`kubectl modelcache why {seen.key.name}` says QuotaExceeded"
        )
        return
    parsed = [parse_object(ModelCacheQuota, raw) for raw in quotas]
    limits = join_limits(
        read_limits(one.spec, f"ModelCacheQuota {raw['metadata']['name']}")
        for raw, one in zip(quotas, parsed, strict=True)
    )
    spec = seen.spec.model_copy(
        update={"retention": wish.retention, "priority": wish.priority or seen.spec.priority}
    )
    if (ungranted := limits.find_ungranted(spec)) is not None:
        asked, _ = ungranted
        raise CliError(
            f"{Reason.QUOTA_EXCEEDED}: {asked} is not granted by {limits.source}, so nothing was "
            "changed: ask for a ModelCacheQuota that grants it"
        )
    if fields.get("retention") != Retention.PINNED:
        return
    used = max(_pinned_bytes(one.status) for one in parsed)
    granted, needed = limits.hard[Item.PINNED], _charge(seen)
    if used + needed > granted:
        raise CliError(
            f"{Reason.QUOTA_EXCEEDED}: its copies take {format_bytes(needed)}, and of the "
            f"{format_bytes(granted)} that {limits.source} lets be pinned {format_bytes(used)} are "
            "already, so nothing was changed: unpin another ModelCache with --off, lower copies, "
            "or ask for a larger ModelCacheQuota"
        )


def _pinned_bytes(status: ModelCacheQuotaStatus | None) -> int:
    return status.used.pinned_bytes if status is not None and status.used is not None else 0


def _charge(seen: SeenCache) -> int:
    """Bytes of its stable version's copies; 0 while they are not known."""
    copies = seen.status.copies
    return (seen.status.size_bytes or 0) * (copies.wanted if copies else 0)


def find_appliers(found: Object, field: str) -> Iterator[str]:
    """Managers that own that field of the spec by server-side apply: they set it back."""
    for entry in found["metadata"].get("managedFields") or ():
        owned = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if entry.get("operation") == "Apply" and f"f:{field}" in owned:
            yield str(entry.get("manager") or "somebody")


def _is_last_applied(found: Object, field: str) -> bool:
    """True if client-side apply states the field. What it does not state, it leaves alone."""
    text = (found["metadata"].get("annotations") or {}).get(_LAST_APPLIED)
    try:
        applied = json.loads(text) if text else {}
    except ValueError:
        return False
    spec = applied.get("spec") if isinstance(applied, dict) else None
    return isinstance(spec, dict) and field in spec
