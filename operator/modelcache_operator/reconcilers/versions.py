"""Reports what is known of one ModelVersion's source and content."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from modelcache_api.names import Tier
from modelcache_operator.decide.events import version_events
from modelcache_operator.decide.node_book import NodeBook
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
from modelcache_operator.ports.telling import EventSink
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.rechecking import Rechecker
from modelcache_operator.resolving import Resolver
from modelcache_operator.workqueue import Requeue

_log = logging.getLogger(__name__)

# A node reports a content that is not stored yet: our read may be older than its proposal.
_CONTENT_RETRY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class VersionReconciler:
    """Looking at sources is the Resolver's and the Rechecker's, which call back by the queue."""

    world: ObservedWorld
    memory: Memory
    writer: ClusterWriter
    events: EventSink
    clock: Clock
    resolver: Resolver
    rechecker: Rechecker
    manifests: Manifests

    async def reconcile(self, key: ObjectKey) -> Requeue:
        """Safe to call at any time, any number of times."""
        version = self.world.model_version_named(key)
        if version is None or version.is_deleted:
            return Requeue()
        content = content_in_status(version) or await self._find_content(version)
        # The wait above may have been long: what is written must rest on what is seen now.
        version = self.world.model_version_named(key)
        if version is None or version.is_deleted:
            return Requeue()
        source = source_in_status(version) or self.resolver.current(version)
        if source is None and _is_reported(version):
            # A new leader knows less than the status says: it stands until the source answers.
            return Requeue()
        await self._report(version, source, content)
        if content is None and self._is_content_reported(version):
            return Requeue(_CONTENT_RETRY_SECONDS)
        return Requeue()

    async def _report(
        self,
        version: ModelVersionView,
        source: ResolvedSource | RefusedSource | None,
        content: KnownContent | None,
    ) -> None:
        live = [book for book in self._holders(version) if book.has_live_agent]
        facts = VersionFacts(
            version,
            source,
            content,
            _count_verified(live, version.uid, Tier.DISK),
            self.resolver.loss(version),
            self.rechecker.current(version, source),
            nodes_in_host=_count_verified(live, version.uid, Tier.HOST),
            nodes_on_gpu=_count_verified(live, version.uid, Tier.GPU),
        )
        status = make_version_status(facts, self.clock.now())
        if await self.writer.put_version_status(version, status):
            self.events.publish(version_events(version, status.conditions))

    async def _find_content(self, version: ModelVersionView) -> KnownContent | None:
        """The adopted content, asked for only when a node says that there is one."""
        if not self._is_content_reported(version):
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
        entries = (book.reported.get(version.uid) for book in self._holders(version))
        return any(entry is not None and entry.content_digest is not None for entry in entries)

    def _holders(self, version: ModelVersionView) -> list[NodeBook]:
        books = self.memory.books.all()
        holders = self.memory.holders(version.uid)
        return [books[name] for name in holders if name in books]


def _count_verified(live: Iterable[NodeBook], version: Uid, tier: Tier) -> int:
    return sum(book.has_verified_in(version, tier) for book in live)


def _is_reported(version: ModelVersionView) -> bool:
    status = version.status
    return bool(status.conditions) and status.observed_generation == version.generation
