"""A namespace's quota, on a real API server."""

from __future__ import annotations

import pytest

from modelcache_kube import EVENTS, MODEL_CACHE_QUOTAS

pytestmark = pytest.mark.cluster


async def grant(stage, disk: int, **spec) -> None:
    body = {
        "metadata": {"name": "q", "namespace": stage.namespace},
        "spec": {"hard": {"disk": str(disk)}, **spec},
    }
    await stage.kube.apply(MODEL_CACHE_QUOTAS, body, field_manager="an-administrator")


async def quota(stage):
    """(used of granted, refused, reason) as the operator reports it."""
    found = await stage.kube.get(MODEL_CACHE_QUOTAS, "q", stage.namespace)
    status = found.get("status") or {}
    reasons = [c["reason"] for c in status.get("conditions", ()) if c["type"] == "Ready"]
    used = (status.get("used") or {}).get("diskBytes")
    return used, status.get("refused"), next(iter(reasons), None)


async def message(stage) -> str:
    conditions = (await stage.cache())["status"]["conditions"]
    return next(item["message"] for item in conditions if item["type"] == "Ready")


async def told(stage) -> set[tuple[str, str]]:
    """Kinds and reasons of the Events of the namespace."""
    events = (await stage.kube.list(EVENTS, stage.namespace)).items
    return {(event["regarding"]["kind"], event["reason"]) for event in events}


async def test_a_quota_bounds_copies_reports_its_use_and_takes_nothing_when_lowered(stage):
    await stage.apply_version()
    await stage.until(stage.version_ready, ("True", "Resolved"))
    size = (await stage.version())["status"]["sizeBytes"]
    await grant(stage, 0)
    await stage.apply_cache(copies=3)
    await stage.until(stage.ready, ("False", "QuotaExceeded"))
    assert "ModelCacheQuota q grants 0 of disk" in await message(stage)
    await stage.until(lambda: told(stage), lambda found: ("ModelCache", "QuotaExceeded") in found)
    await grant(stage, 2 * size)
    await stage.until(stage.ready, ("True", "Degraded"))
    await stage.until(stage.copies, "2/3")
    assert "QuotaExceeded: 3 copies need" in await message(stage)
    await stage.until(lambda: quota(stage), (2 * size, 1, "WithinQuota"))
    await grant(stage, 3 * size)
    await stage.until_cached(copies="3/3")
    await stage.until(lambda: quota(stage), (3 * size, 0, "WithinQuota"))
    await grant(stage, size)
    await stage.until(lambda: quota(stage), (3 * size, 0, "QuotaExceeded"))
    entries = [await stage.cache_node(name) for name in stage.nodes]
    assert [node["spec"]["entries"][0]["overQuota"] for node in entries] == [True] * 3
    assert await stage.copies() == "3/3"
    await stage.until(
        lambda: told(stage), lambda found: ("ModelCacheQuota", "QuotaExceeded") in found
    )
    assert stage.fleet.errors == []


async def test_what_a_quota_must_grant_waits_for_one(stage):
    await grant(stage, 1 << 40)
    await stage.apply_version()
    await stage.apply_cache(copies="All")
    await stage.until(stage.ready, ("False", "QuotaExceeded"))
    assert "copies: All is not granted by ModelCacheQuota q" in await message(stage)
    await grant(stage, 1 << 40, allNodes=True)
    await stage.until_cached(copies="3/3")
    assert stage.fleet.errors == []
