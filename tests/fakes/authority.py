"""The authority's store, in memory, with the API server's optimistic locking."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

from modelcache_kube.errors import KubeError
from modelcache_operator.ports.authority import Authority, KeyPair


class MemoryAuthorityStore:
    """Shared by the replicas of a test. Yields between reading and writing, as a network does."""

    def __init__(self) -> None:
        self.authority: Authority | None = None
        self.bundle = b""
        self.since: datetime | None = None
        self.bundles: set[bytes] = set()
        self.is_read_only = False
        self._writes = 0

    async def read(self) -> Authority | None:
        return self.authority

    async def create(self, current: KeyPair) -> bool:
        await asyncio.sleep(0)
        if self.authority is not None:
            return False
        self.authority = Authority(current, version="0")
        return True

    async def replace(self, authority: Authority) -> bool:
        await asyncio.sleep(0)
        if self.is_read_only:
            raise KubeError("secrets is forbidden")
        if self.authority is None or authority.version != self.authority.version:
            return False
        self._writes += 1
        self.authority = replace(authority, version=str(self._writes))
        return True

    async def publish(self, bundle: bytes, now: datetime) -> datetime:
        await asyncio.sleep(0)
        if bundle != self.bundle or self.since is None:
            self.bundle, self.since = bundle, now
            self.bundles.add(bundle)
        return self.since

    def ask_for_rotation(self) -> None:
        assert self.authority is not None
        self._writes += 1
        self.authority = replace(self.authority, is_rotation_asked=True, version=str(self._writes))
