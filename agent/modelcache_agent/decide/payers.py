"""Whom the bytes of a version are counted for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelcache_agent.decide.charges import list_uids
from modelcache_api.names import EntryOrigin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_api.v1alpha1.cache_node import CacheRef


def find_payer(uid: str, caches: Iterable[CacheRef]) -> str:
    """The namespace of the ModelCache that wants the version here; "" if none is named.

    Bytes that several share are counted once: for who placed it, then for the first by name.
    """
    wanting = sorted(
        (uid == cache.stable_uid and cache.origin is EntryOrigin.DEMAND, cache.namespace)
        for cache in caches
        if uid in list_uids(cache)
    )
    return wanting[0][1] if wanting else ""
