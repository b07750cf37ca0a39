"""The wish that a node's copy goes: an annotation of its CacheNode, written and taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from modelcache_api.names import ANNOTATION_PREFIX_EVICT, MANAGER_COMMAND_LINE
from modelcache_kube import (
    CACHE_NODES,
    ApiUnavailable,
    Conflict,
    KubeClient,
    KubeError,
    NotFound,
)

Object = Mapping[str, Any]
Sleep = Callable[[float], Awaitable[None]]
# Between the tries to take a wish back. Whoever stops a command is given some ten seconds, and an
# API server that starts anew needs about as many.
_PAUSES: Final = (1.0, 2.0, 4.0, 8.0)
# What agents do by themselves.
_LAPSES: Final = timedelta(hours=1)


async def ask_to_evict(kube: KubeClient, found: Iterable[Object], uid: str, now: datetime) -> None:
    """Write the wish to each CacheNode."""
    for raw in found:
        await kube.merge_patch(
            CACHE_NODES,
            raw["metadata"]["name"],
            build_wish(raw, uid, now),
            field_manager=MANAGER_COMMAND_LINE,
        )


def build_wish(raw: Object, uid: str, now: datetime) -> dict[str, Any]:
    """The merge patch; wishes about versions that are not there any more are taken away. Pure."""
    metadata = raw["metadata"]
    wanted = {entry["uid"] for entry in raw["spec"].get("entries") or ()}
    old = {
        name: None
        for name in metadata.get("annotations") or {}
        if name.startswith(ANNOTATION_PREFIX_EVICT)
        and name.removeprefix(ANNOTATION_PREFIX_EVICT) not in wanted
    }
    wish = {f"{ANNOTATION_PREFIX_EVICT}{uid}": _write(now)}
    return {"metadata": {"uid": metadata["uid"], "annotations": old | wish}}


def _write(now: datetime) -> str:
    return now.isoformat(timespec="milliseconds")


async def withdraw(
    kube: KubeClient, uid: str, nodes: Iterable[str], now: datetime, sleep: Sleep = asyncio.sleep
) -> dict[str, str]:
    """Take the wishes of that time away; the nodes that keep theirs, and why. Never fails."""
    each = list(dict.fromkeys(nodes))
    troubles = await asyncio.gather(*(_withdraw(kube, uid, node, now, sleep) for node in each))
    return {node: told for node, told in zip(each, troubles, strict=True) if told is not None}


async def _withdraw(
    kube: KubeClient, uid: str, node: str, now: datetime, sleep: Sleep
) -> str | None:
    pauses = list(_PAUSES)
    while True:
        try:
            await _take_back(kube, uid, node, now)
        except ApiUnavailable as error:
            if not pauses:
                return str(error)
            await sleep(pauses.pop(0))
        except KubeError as error:
            return str(error)
        else:
            return None


async def _take_back(kube: KubeClient, uid: str, node: str, now: datetime) -> None:
    """A CacheNode that is gone, or was made anew, has none; a later one is somebody else's."""
    name = f"{ANNOTATION_PREFIX_EVICT}{uid}"
    found = await kube.get(CACHE_NODES, node)
    if found is None or (found["metadata"].get("annotations") or {}).get(name) != _write(now):
        return
    metadata = {"uid": found["metadata"]["uid"], "annotations": {name: None}}
    with suppress(NotFound, Conflict):
        await kube.merge_patch(
            CACHE_NODES, node, {"metadata": metadata}, field_manager=MANAGER_COMMAND_LINE
        )


def tell_standing(node: str, uid: str, now: datetime, trouble: str) -> str:
    """What a wish that stays means, and how to end it. Pure."""
    return (
        f"node {node} may still be asked, until {now + _LAPSES:%H:%M} UTC: the wish could not be "
        f"taken back ({trouble}); `kubectl annotate cachenode {node} "
        f"{ANNOTATION_PREFIX_EVICT}{uid}-` does it"
    )
