"""What is seen of the GPU tier: which contents are verified on the card, and what it has. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from modelcache_agent.decide.gpu.capacity import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modelcache_agent.decide.gpu.room import Key
    from modelcache_api.names import Reason
    from modelcache_api.v1alpha1.cache_node import CacheRef

NO_BUDGET = Budget(0, 0, 0, is_shared_with_host=False, why="the card cannot be used")
EMULATED_MESSAGE = "on the emulated device: its bytes are host memory, no card is used"


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A verified copy. `is_attached`: a live pod maps it, so giving it up would free nothing."""

    digest: str
    size_bytes: int
    is_attached: bool = False


@dataclass(frozen=True, slots=True)
class GpuSetback:
    """Why a content was not loaded; it is tried again at `retry_at` (monotonic seconds).

    `refused_beside` is what the card held when it refused although there was room by the book;
    None: it was something else, or the second time.
    """

    reason: Reason
    message: str
    retry_at: float
    refused_beside: frozenset[Key] | None = None


@dataclass(frozen=True, slots=True)
class GpuView:
    """The card's book and what goes on there.

    `loading` are the bytes promised to loads, `lingering_bytes` were given up and are mapped still.
    `needed` says by digest what a content would take there: 0 if nothing of it is of use on a card;
    without a word it was not measured yet. `namespaces` are those of ModelVersions, by uid.
    `marked` are the keys whose label on the Node may say `gpu`, `condemned` the victims of the plan
    before.
    `why_off` is the driver's text while the card cannot be used, and nothing is held then.
    """

    budget: Budget = NO_BUDGET
    held: Mapping[Key, OnDevice] = field(default_factory=lambda: MappingProxyType({}))
    loading: Mapping[Key, int] = field(default_factory=lambda: MappingProxyType({}))
    lingering_bytes: int = 0
    needed: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    namespaces: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    setbacks: Mapping[Key, GpuSetback] = field(default_factory=lambda: MappingProxyType({}))
    condemned: frozenset[Key] = frozenset()
    marked: frozenset[str] = frozenset()
    why_off: str | None = None
    is_emulated: bool = False

    @property
    def held_bytes(self) -> int:
        """Bytes of all verified copies."""
        return sum(copy.size_bytes for copy in self.held.values())


def find_namespaces(caches: Iterable[CacheRef]) -> dict[str, str]:
    """The namespace of each ModelVersion that these ModelCaches name, by its uid."""
    return {
        uid: cache.namespace
        for cache in caches
        for uid in (cache.stable_uid, cache.canary_uid, *cache.held_uids)
        if uid is not None
    }
