"""Lists sources, on workers of its own: a store that hangs must not keep anything else waiting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from modelcache_api.manifest import SourceManifest
from modelcache_api.names import Reason
from modelcache_operator.decide.version_status import (
    RefusedSource,
    ResolvedSource,
    source_in_status,
)
from modelcache_operator.decide.world import ModelVersionView, Uid
from modelcache_operator.keys import Key, version_key
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.manifests import ManifestDamagedError, Manifests
from modelcache_operator.ports.sources import SourceError, Sources
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.sources.partial.loading import PartLoader
from modelcache_operator.workqueue import Requeue, WorkQueue

_log = logging.getLogger(__name__)

# Sources keep deadlines of their own, up to five minutes; this one is for what has none.
RESOLVE_SECONDS: Final = 320.0
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
    parts: PartLoader
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
        for uid, attempt in tuple(self._attempts.items()):
            version = self.world.model_version(uid)
            is_settled = isinstance(attempt.outcome, ResolvedSource)
            if version is None or (is_settled and source_in_status(version) is not None):
                del self._attempts[uid]

    def loss(self, version: ModelVersionView) -> RefusedSource | None:
        """Why the lost source manifest of a resolved version cannot be restored, or None."""
        attempt = self._attempts.get(version.uid)
        if attempt is None or source_in_status(version) is None:
            return None
        return attempt.outcome if isinstance(attempt.outcome, RefusedSource) else None

    def look_for_source(self, version: ModelVersionView) -> None:
        """Somebody missed the source manifest of a resolved version."""
        self.queue.add(version_key(version.key))

    async def reconcile(self, key: Key) -> Requeue:
        """One attempt, if one is due. A resolved version is listed again if its list was lost."""
        version = self.world.model_version_named(key.object_key)
        if version is None or version.is_deleted:
            return Requeue()
        last = self._last_attempt(version)
        if last is not None and self.clock.monotonic() < last.due_at:
            return Requeue()
        wanted = version.status.source_digest
        if wanted is not None and await self._is_kept(version.uid, wanted):
            if self._attempts.pop(version.uid, None) is not None:
                self.on_outcome(key)
            return Requeue()
        attempt = await self._attempt(version, last.failures if last else 0)
        self._attempts[version.uid] = attempt
        self.on_outcome(key)
        is_over = wanted is None or isinstance(attempt.outcome, ResolvedSource)
        return Requeue(None if is_over else attempt.due_at - self.clock.monotonic())

    async def _is_kept(self, uid: Uid, digest: str) -> bool:
        try:
            return await self.manifests.get_source(uid, digest) is not None
        except ManifestDamagedError:
            # It is told where it is asked for. What is there is never written over.
            return True

    def _last_attempt(self, version: ModelVersionView) -> _Attempt | None:
        """The one that matters: for this spec, and of a resolved version only a failed one."""
        last = self._attempts.get(version.uid)
        if last is None or last.generation != version.generation:
            return None
        is_settled = isinstance(last.outcome, ResolvedSource)
        return None if is_settled and source_in_status(version) is not None else last

    async def _attempt(self, version: ModelVersionView, failures: int) -> _Attempt:
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                # A list that was lost is that of then, wherever a branch has gone meanwhile.
                listed = await self.sources.resolve(version, version.status.source_revision)
                manifest = await self.parts.cut(version, listed)
            _check_unchanged(version, manifest)
        except SourceError as error:
            return self._note_failure(version, error, failures + 1)
        await self.manifests.put_source(version.uid, manifest)
        found = ResolvedSource.of(manifest)
        _log.info("%s is resolved: %d files", version.key, found.files)
        return _Attempt(version.generation, found)

    def _note_failure(
        self, version: ModelVersionView, error: SourceError, failures: int
    ) -> _Attempt:
        needs_help = error.retry_after_seconds is None
        first = _SLOW_RETRY_SECONDS if needs_help else _FIRST_RETRY_SECONDS
        doubled = first * 2.0 ** min(failures - 1, 10) * self.uniform(0.8, 1.2)
        delay = max(min(doubled, _LONGEST_RETRY_SECONDS), error.retry_after_seconds or 0.0)
        _log.info("%s is not resolved: again in %.0f s reason=%s", version.key, delay, error.reason)
        refusal = RefusedSource(error.reason, error.message, needs_help)
        return _Attempt(version.generation, refusal, failures, self.clock.monotonic() + delay)


def _check_unchanged(version: ModelVersionView, manifest: SourceManifest) -> None:
    wanted = version.status.source_digest
    if wanted is not None and manifest.digest != wanted:
        raise SourceError(
            Reason.SOURCE_CHANGED,
            "the list of files of this version was lost, and the source holds others now: "
            "create a new ModelVersion, or restore the source",
        )
