"""Takes away what belongs to nobody any more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from modelcache_operator.decide.world import Uid
from modelcache_operator.ports.manifests import Manifests
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.workqueue import Requeue

_EVERY_SECONDS: Final = 900.0
# A version may be newer than what we have seen: only what is unknown twice is an orphan.
_AGAIN_SECONDS: Final = 30.0


@dataclass(slots=True)
class OrphanSweep:
    """Deletes manifests of ModelVersions that are gone."""

    world: ObservedWorld
    manifests: Manifests
    _suspects: frozenset[Uid] = field(default=frozenset())

    async def reconcile(self) -> Requeue:
        """One sweep. Safe to call at any time, any number of times."""
        if not self.world.is_synced:
            return Requeue(_AGAIN_SECONDS)
        kept = await self.manifests.uids()
        there = self.world.unreadable.versions
        unknown = frozenset(
            uid for uid in kept if self.world.model_version(uid) is None and uid not in there
        )
        for uid in unknown & self._suspects:
            await self.manifests.delete(uid)
        self._suspects = unknown - self._suspects
        return Requeue(_AGAIN_SECONDS if self._suspects else _EVERY_SECONDS)
