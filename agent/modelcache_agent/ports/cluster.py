"""The API server, as far as one agent may use it.

ClusterError    a request did not succeed; whether it had an effect is unknown
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheNodeStatus


class ClusterError(Exception):
    """One sentence; `retry_after` in seconds where the server named it."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class CacheNodeView:
    """Our CacheNode as last seen.

    `dismissed`: when (Unix seconds) somebody asked to let a ModelVersion's copy go, by its uid.
    """

    uid: str
    spec: CacheNodeSpec
    status: CacheNodeStatus
    dismissed: Mapping[str, float] = field(default_factory=dict)


class Cluster(Protocol):
    """Own CacheNode, own Node's labels, own Lease. All requests have a deadline."""

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[CacheNodeView | None]]:
        """Our CacheNode after each change, None where it does not exist. Never ends by itself."""
        ...

    async def apply_status(self, cache_node_uid: str, status: CacheNodeStatus) -> None:
        """Make our fields of the status exactly these. Raises ClusterError."""
        ...

    async def apply_labels(
        self,
        keys: frozenset[str],
        in_memory: frozenset[str] = frozenset(),
        on_device: frozenset[str] = frozenset(),
    ) -> frozenset[str]:
        """Make the Node carry exactly these keys of our prefix, and return those it carries then.

        The value of those `on_device` is `gpu`, of others `in_memory` `host`, of the rest `disk`.

        Raises:
            ClusterError: it may carry the old or the new ones.
        """
        ...

    async def renew_lease(self) -> None:
        """Say that this agent lives. Raises ClusterError."""
        ...
