"""Resolves one ModelVersion, once, and reports what is known of its content."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from modelcache_operator.decide.events import version_events
from modelcache_operator.decide.version_status import (
    KnownContent,
    RefusedSource,
    ResolvedSource,
    VersionFacts,
    content_in_status,
    make_version_status,
    source_in_status,
)
from modelcache_operator.decide.world import ModelVersionView, ObjectKey, Uid
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.cluster import ClusterWriter
from modelcache_operator.ports.manifests import ManifestDamagedError, Manifests
from modelcache_operator.ports.sources import SourceError, Sources
from modelcache_operator.ports.telling import EventSink
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.routing import Router
from modelcache_operator.workqueue import Requeue

_log = logging.getLogger(__name__)

# A listing of 10,000 keys takes seconds; minutes mean that the store hangs.
_RESOLVE_SECONDS: Final = 120.0
# Listings that run at once: each is a connection and up to 10,000 files in memory.
_RESOLVE_AT_ONCE: Final = 4
_FIRST_RETRY_SECONDS: Final = 2.0
# Only a changed object, Secret or allow-list can help: look now and then.
_SLOW_RETRY_SECONDS: Final = 60.0
_LONGEST_RETRY_SECONDS: Final = 300.0
# A node reports a content that is not stored yet: our read may be older than its proposal.
_CONTENT_RETRY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The last failure to resolve a version of one generation of the spec."""

    generation: int
    failures: int
    due_at: float
    refusal: RefusedSource


@dataclass(frozen=True, slots=True)
class VersionReconciler:
    """Never lists a source again once its digest is in the status."""

    world: ObservedWorld
    memory: Memory
    router: Router
    writer: ClusterWriter
    events: EventSink
    clock: Clock
    sources: Sources
    manifests: Manifests
    uniform: Callable[[float, float], float]
    _attempts: dict[Uid, _Attempt] = field(default_factory=dict)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_RESOLVE_AT_ONCE))

    async def reconcile(self, key: ObjectKey) -> Requeue:
        """Safe to call at any time, any number of times."""
        version = self.world.model_version_named(key)
        if version is None or version.is_deleted:
            return Requeue()
        source = source_in_status(version) or await self._resolve(version)
        content = content_in_status(version) or await self._find_content(version, source)
        # The waits above may have taken minutes: what is written must rest on what is seen now.
        version = self.world.model_version_named(key)
        if version is None or version.is_deleted:
            return Requeue()
        await self._report(version, source, content)
        return self._when_to_look_again(version, source, content)

    async def _report(
        self,
        version: ModelVersionView,
        source: ResolvedSource | RefusedSource | None,
        content: KnownContent | None,
    ) -> None:
        facts = VersionFacts(version, source, content, self._count_nodes(version))
        status = make_version_status(facts, self.clock.now())
        if await self.writer.put_version_status(version, status):
            self.events.publish(version_events(version, status.conditions))

    async def _resolve(self, version: ModelVersionView) -> ResolvedSource | RefusedSource:
        last = self._attempts.get(version.uid)
        if last and last.generation == version.generation:
            if self.clock.monotonic() < last.due_at:
                return last.refusal
        else:
            last = None
        if not version.status.conditions:
            await self._report(version, None, None)
        try:
            async with self._slots, asyncio.timeout(_RESOLVE_SECONDS):
                manifest = await self.sources.resolve(version)
        except SourceError as error:
            return self._note_failure(version, error, last.failures + 1 if last else 1)
        await self.manifests.put_source(version.uid, manifest)
        self._attempts.pop(version.uid, None)
        return ResolvedSource(manifest.digest, manifest.size_bytes, len(manifest.files))

    def _note_failure(
        self, version: ModelVersionView, error: SourceError, failures: int
    ) -> RefusedSource:
        needs_help = error.retry_after_seconds is None
        first = _SLOW_RETRY_SECONDS if needs_help else _FIRST_RETRY_SECONDS
        doubled = first * 2.0 ** min(failures - 1, 10) * self.uniform(0.8, 1.2)
        delay = max(min(doubled, _LONGEST_RETRY_SECONDS), error.retry_after_seconds or 0.0)
        refusal = RefusedSource(error.reason, error.message, needs_help)
        due_at = self.clock.monotonic() + delay
        self._attempts[version.uid] = _Attempt(version.generation, failures, due_at, refusal)
        _log.info("%s is not resolved: %s; again in %.0f s", version.key, error.reason, delay)
        return refusal

    async def _find_content(
        self, version: ModelVersionView, source: ResolvedSource | RefusedSource
    ) -> KnownContent | None:
        """The adopted content, asked for only when a node says that there is one."""
        if isinstance(source, RefusedSource) or not self._is_content_reported(version):
            return None
        try:
            adopted = await self.manifests.get_content(version.uid)
        except ManifestDamagedError as error:
            _log.error("%s: %s", version.key, error)
            return None
        if adopted is None:
            return None
        return KnownContent(adopted.manifest.digest, adopted.manifest_digest)

    def _is_content_reported(self, version: ModelVersionView) -> bool:
        books = self.memory.books.all()
        holders = self.memory.assignments.holders(version.uid)
        entries = (books[name].reported.get(version.uid) for name in holders if name in books)
        return any(entry is not None and entry.content_digest is not None for entry in entries)

    def _count_nodes(self, version: ModelVersionView) -> int:
        books = self.memory.books.all()
        holders = self.memory.assignments.holders(version.uid)
        live = (books[name] for name in holders if name in books and books[name].has_live_agent)
        return sum(book.has_verified(version.uid) for book in live)

    def _when_to_look_again(
        self,
        version: ModelVersionView,
        source: ResolvedSource | RefusedSource,
        content: KnownContent | None,
    ) -> Requeue:
        if isinstance(source, RefusedSource):
            due_at = self._attempts[version.uid].due_at if version.uid in self._attempts else 0.0
            return Requeue(max(0.0, due_at - self.clock.monotonic()))
        if content is None and self._is_content_reported(version):
            return Requeue(_CONTENT_RETRY_SECONDS)
        return Requeue()

    def forget_gone(self) -> None:
        """Drop what is remembered of versions that are gone."""
        for uid in [uid for uid in self._attempts if self.world.model_version(uid) is None]:
            del self._attempts[uid]
