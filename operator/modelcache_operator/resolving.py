"""Lists sources, on workers of its own: a store that hangs must not keep anything else waiting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from modelcache_operator.decide.version_status import (
    RefusedSource,
    ResolvedSource,
    source_in_status,
)
from modelcache_operator.decide.world import ModelVersionView, Uid
from modelcache_operator.keys import Key, version_key
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.manifests import Manifests
from modelcache_operator.ports.sources import SourceError, Sources
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.workqueue import Requeue, WorkQueue

_log = logging.getLogger(__name__)

# Sources keep deadlines of their own, up to five minutes; this one is for what has none.
_RESOLVE_SECONDS: Final = 320.0
_FIRST_RETRY_SECONDS: Final = 2.0
# Only a changed object, Secret or allow-list can help: look now and then.
_SLOW_RETRY_SECONDS: Final = 60.0
_LONGEST_RETRY_SECONDS: Final = 300.0

Outcome = ResolvedSource | RefusedSource


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The last attempt for one generation of the spec. Failures are repeated from `due_at` on."""

    generation: int
    outcome: Outcome
    failures: int = 0
    due_at: float = float("inf")


@dataclass(frozen=True, slots=True)
class Resolver:
    """Remembers what each unresolved version's source said. `queue` holds only versions."""

    world: ObservedWorld
    sources: Sources
    manifests: Manifests
    clock: Clock
    queue: WorkQueue
    uniform: Callable[[float, float], float]
    on_outcome: Callable[[Key], None]
    _attempts: dict[Uid, _Attempt] = field(default_factory=dict)

    def current(self, version: ModelVersionView) -> Outcome | None:
        """What is known now; None while nothing is. Asks for an attempt if one is due."""
        attempt = self._attempts.get(version.uid)
        if attempt is None or attempt.generation != version.generation:
            self.queue.add(version_key(version.key))
            return None
        wait = attempt.due_at - self.clock.monotonic()
        if isinstance(attempt.outcome, RefusedSource):
            self.queue.add(version_key(version.key), after_seconds=wait)
        return attempt.outcome

    def forget_gone(self) -> None:
        """Drop what is remembered of versions that are gone or resolved for good."""
        for uid in tuple(self._attempts):
            version = self.world.model_version(uid)
            if version is None or source_in_status(version) is not None:
                del self._attempts[uid]

    async def reconcile(self, key: Key) -> Requeue:
        """One attempt, if one is due. A version is never listed again once its status says so."""
        version = self.world.model_version_named(key.object_key)
        if version is None or version.is_deleted or source_in_status(version) is not None:
            return Requeue()
        last = self._attempts.get(version.uid)
        if last is not None and last.generation != version.generation:
            last = None
        if last is not None and self.clock.monotonic() < last.due_at:
            return Requeue()
        self._attempts[version.uid] = await self._attempt(version, last.failures if last else 0)
        self.on_outcome(key)
        return Requeue()

    async def _attempt(self, version: ModelVersionView, failures: int) -> _Attempt:
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                manifest = await self.sources.resolve(version)
        except SourceError as error:
            return self._note_failure(version, error, failures + 1)
        await self.manifests.put_source(version.uid, manifest)
        found = ResolvedSource(manifest.digest, manifest.size_bytes, len(manifest.files))
        _log.info("%s is resolved: %d files", version.key, found.files)
        return _Attempt(version.generation, found)

    def _note_failure(
        self, version: ModelVersionView, error: SourceError, failures: int
    ) -> _Attempt:
        needs_help = error.retry_after_seconds is None
        first = _SLOW_RETRY_SECONDS if needs_help else _FIRST_RETRY_SECONDS
        doubled = first * 2.0 ** min(failures - 1, 10) * self.uniform(0.8, 1.2)
        delay = max(min(doubled, _LONGEST_RETRY_SECONDS), error.retry_after_seconds or 0.0)
        _log.info("%s is not resolved: %s; again in %.0f s", version.key, error.reason, delay)
        refusal = RefusedSource(error.reason, error.message, needs_help)
        return _Attempt(version.generation, refusal, failures, self.clock.monotonic() + delay)
