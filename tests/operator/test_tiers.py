"""A ModelCache that wants its copies in memory, on a real API server."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cluster


async def tiers(stage) -> dict[str, str]:
    """In which tier each node of the stage is to hold the version."""
    found = {name: await stage.cache_node(name) for name in stage.nodes}
    return {
        name: entry["tier"]
        for name, node in found.items()
        for entry in (node or {"spec": {}})["spec"].get("entries", ())
    }


async def nodes_in_host(stage) -> int:
    return (await stage.version())["status"]["nodes"]["host"]


async def message(stage) -> str:
    conditions = (await stage.cache())["status"]["conditions"]
    return next(item["message"] for item in conditions if item["type"] == "Ready")


async def test_C36_copies_come_into_memory_where_there_is_room_and_none_is_lost_on_the_way(stage):
    with_tier, *others = stage.nodes
    await stage.apply_version()
    await stage.apply_cache(copies=2, tier="Host")
    await stage.until(stage.ready, ("False", "NoEligibleNode"))
    assert "3 without a Host tier" in await message(stage)
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    held = await tiers(stage)
    await stage.apply_cache(copies=2, tier="Host")
    await stage.until(stage.ready, ("True", "Degraded"))
    assert "2 of 2 copies are verified, 0 of 2 in tier Host; NoEligibleNode" in await message(stage)
    assert await tiers(stage) == held
    stage.fleet.change(with_tier, host_bytes=1 << 30, is_slow=True)
    await stage.until(lambda: tiers(stage), lambda found: found.get(with_tier) == "Host")
    stage.fleet.change(with_tier, is_slow=False)
    await stage.until(stage.in_tier, 1)
    assert (await stage.copies(), await stage.ready()) == ("2/2", ("True", "Degraded"))
    for name in others:
        stage.fleet.change(name, host_bytes=1 << 30)
    await stage.until_cached(copies="2/2")
    await stage.until(lambda: tiers(stage), lambda found: list(found.values()) == ["Host"] * 2)
    await stage.until(stage.in_tier, 2)
    assert await message(stage) == "2 verified copies in tier Host"
    await stage.until(lambda: nodes_in_host(stage), 2)
    assert stage.fleet.errors == []
