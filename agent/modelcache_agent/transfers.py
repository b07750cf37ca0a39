"""Bringing one version to this node: grant, fetch, publish, propose.

TransferFailedError    a reason, a sentence, and the least pause before the next try
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from modelcache_agent.adopt.handover import take_staged
from modelcache_agent.decide.history import LoadCost
from modelcache_agent.decide.measures import LoadSource
from modelcache_agent.decide.possession import HeldFiles
from modelcache_agent.decide.world import Origin
from modelcache_agent.fetch import (
    FetchCancelledError,
    FetchEngine,
    FetchFile,
    FetchJob,
    FetchOutcome,
    GrantUnavailableError,
    Progress,
)
from modelcache_agent.held_files import find_blobs, find_held
from modelcache_agent.peers.waiting import GrantQueue
from modelcache_agent.ports.grants import Grants, OpenedGrant
from modelcache_agent.salvage import find_salvage, finish_in_thread
from modelcache_agent.shared_pieces import find_shared_pieces
from modelcache_agent.slots import SlotKeeper
from modelcache_agent.stopwatch import Stopwatch
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.errors import StoreError, describe_error
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_api.manifest import (
    ContentDigest,
    ContentFile,
    ContentManifest,
    SourceManifest,
    make_content_manifest,
)
from modelcache_api.names import EntryState, Reason
from modelcache_api.v1alpha1.cache_node import EntrySpec

_log = logging.getLogger(__name__)
_STORE_SECONDS = 30.0


class TransferFailedError(Exception):
    """`retry_after` None: only a change of the source or the spec can help."""

    def __init__(self, reason: Reason, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Listeners:
    """What a transfer tells, and `news`, by which it hears that its entry has changed.

    `on_state` is told the state and, where a limit of the fleet is waited for, who is ahead.
    """

    on_progress: Callable[[Progress], None]
    on_state: Callable[[EntryState, str], None]
    on_fetched: Callable[[], None]
    news: asyncio.Event


@dataclass(frozen=True, slots=True)
class Transfers:
    """What the loop starts for single entries. All methods raise TransferFailedError."""

    grants: Grants
    engine: FetchEngine
    store: DiskStore
    thread: StoreThread
    queue: GrantQueue
    slots: SlotKeeper
    note_written: Callable[[Sequence[str]], None] = lambda _blobs: None
    """Told of blobs that were written through the page cache, once they are published."""

    note_loaded: Callable[[ContentDigest, LoadSource, float], None] = lambda *_: None
    """Told of each content that was brought here: from where, and in how many seconds since it was
    tried first, or for the first time after nobody tried."""

    async def fetch(
        self,
        entry: EntrySpec,
        namespace: str,
        listeners: Listeners,
        *,
        through_memory: bool = False,
    ) -> None:
        """Fetch and publish the entry's bytes, counted for the namespace.

        The caller has reserved them, on the disk and, if they go `through_memory`, there too.
        """
        outcome = None
        began = self.engine.begin_load(entry.uid, asyncio.get_running_loop().time())
        try:
            while outcome is None:
                opened = await self._open(entry, listeners)
                held = await self._find_held(opened)
                await self._take_staged(entry, opened, held.known)
                await self._take_sound_pieces(entry, opened, held.known)
                await self._take_shared_pieces(entry, opened, held.known)
                job = self._make_job(entry, namespace, opened, held.known)
                job = replace(job, through_memory=through_memory)
                watch = Stopwatch(asyncio.get_running_loop().time, listeners.on_progress)
                outcome = await self._run(job, opened, held, watch.note)
        finally:
            self.grants.forget(entry.uid)
        listeners.on_fetched()
        digest = await self._publish(entry, opened, *outcome)
        if through_memory:
            self.note_written([file.sha256 for file in outcome[0].files])
        took = asyncio.get_running_loop().time() - began
        self.note_loaded(digest, self.engine.take_source(entry.uid), took)
        await self._note_cost(digest, watch.measure())

    async def _open(self, entry: EntrySpec, listeners: Listeners) -> OpenedGrant:
        try:
            return await self.queue.open(entry, listeners.news, listeners.on_state)
        except GrantUnavailableError as error:
            raise _failed(error) from error

    def _make_job(
        self,
        entry: EntrySpec,
        namespace: str,
        opened: OpenedGrant,
        here: Mapping[str, ContentFile],
    ) -> FetchJob:
        return FetchJob(
            uid=entry.uid,
            source_digest=entry.source_digest,
            files=tuple(
                FetchFile(file, opened.contents.get(file.path))
                for file in opened.source.files
                if file.path not in here
            ),
            directory=self.store.layout.partial / entry.uid,
            ca_bundle=opened.ca_bundle,
            namespace=namespace,
        )

    async def _run(
        self,
        job: FetchJob,
        opened: OpenedGrant,
        held: HeldFiles,
        on_progress: Callable[[Progress], None],
    ) -> tuple[FetchOutcome, Mapping[str, ContentFile]] | None:
        """What was fetched, and what is used as it is here.

        None if leave to read the source was lost, and must be waited for again.
        """
        if not job.files:
            return FetchOutcome(job.uid, ()), held.known
        stop = partial(self.engine.cancel, job.uid)
        blobs = await self.thread.call(find_blobs, self.store, held.claimed)
        async with self.slots.keeping(job.uid, opened.slot, stop) as lease:
            try:
                shown = await self._challenge(job, blobs)
                here = dict(held.known) | {path: held.claimed[path] for path in shown}
                outcome = await self._fetch_all_but(job, shown, on_progress)
            except FetchCancelledError:
                if lease.is_lost:
                    return None
                raise
        if outcome.failure is not None:
            failure = outcome.failure
            raise TransferFailedError(failure.reason, failure.message, failure.retry_after_seconds)
        return outcome, here

    async def _challenge(self, job: FetchJob, blobs: Mapping[str, Path]) -> frozenset[str]:
        """Which of the files that are here the source has shown to have.

        Without a pause before or after, in which `stop` would stop nothing.
        """
        if not blobs:
            return frozenset()
        files = tuple(file for file in job.files if file.source.path in blobs)
        return await self.engine.challenge(replace(job, files=files), blobs)

    async def _fetch_all_but(
        self, job: FetchJob, here: Container[str], on_progress: Callable[[Progress], None]
    ) -> FetchOutcome:
        files = tuple(file for file in job.files if file.source.path not in here)
        if not files:
            return FetchOutcome(job.uid, ())
        return await self.engine.fetch(replace(job, files=files), on_progress)

    async def _take_staged(
        self, entry: EntrySpec, opened: OpenedGrant, here: Container[str]
    ) -> None:
        """A tree that was handed over for this version is the beginning of its transfer."""
        missing = [file for file in opened.source.files if file.path not in here]
        try:
            await self.thread.call(
                take_staged, self.store.layout, entry.uid, entry.source_digest, missing
            )
        except OSError as error:
            message = f"the adopted tree cannot be taken: {describe_error(error)}"
            raise TransferFailedError(Reason.STORE_ERROR, message, _STORE_SECONDS) from error

    async def _take_sound_pieces(
        self, entry: EntrySpec, opened: OpenedGrant, here: Container[str]
    ) -> None:
        """What is right in a quarantined file need not be fetched again."""
        missing = [file for file in opened.source.files if file.path not in here]
        work = await self.thread.call(find_salvage, self.store, entry, missing)
        for salvage in work:
            await finish_in_thread(salvage.run)

    async def _take_shared_pieces(
        self, entry: EntrySpec, opened: OpenedGrant, here: Container[str]
    ) -> None:
        """What other versions of the same source have brought here need not be fetched again."""
        missing = [file for file in opened.source.files if file.path not in here]
        try:
            work = await self.thread.call(
                find_shared_pieces, self.store, entry, missing, opened.shared
            )
        except (OSError, ValueError) as error:
            message = f"the record cannot be read: {describe_error(error)}"
            raise TransferFailedError(Reason.STORE_ERROR, message, _STORE_SECONDS) from error
        for shared in work:
            await finish_in_thread(shared.run)

    async def _find_held(self, opened: OpenedGrant) -> HeldFiles:
        try:
            return await self.thread.call(find_held, self.store, opened)
        except (OSError, ValueError) as error:
            message = f"the record cannot be read: {describe_error(error)}"
            raise TransferFailedError(Reason.STORE_ERROR, message, _STORE_SECONDS) from error

    async def _publish(
        self,
        entry: EntrySpec,
        opened: OpenedGrant,
        outcome: FetchOutcome,
        here: Mapping[str, ContentFile],
    ) -> ContentDigest:
        contents = {file.path: file.content for file in outcome.files} | dict(here)
        manifest = _assemble(opened.source, contents)
        expected = opened.content_digest or entry.content_digest
        if expected is not None and manifest.digest != expected:
            message = f"the bytes have {manifest.digest}, the version's content is {expected}"
            raise TransferFailedError(Reason.DIGEST_MISMATCH, message, None)
        origin = Origin(entry.uid, entry.source_digest, adopted=expected is not None)
        finished: dict[str, Path] = {file.path: file.partial_path for file in outcome.files}
        try:
            await self.thread.call(self.store.publish, manifest, finished, origin)
        except (StoreError, OSError) as error:
            message = f"the bytes cannot be published: {describe_error(error)}"
            raise TransferFailedError(Reason.STORE_ERROR, message, _STORE_SECONDS) from error
        _log.info("published uid=%s version=%s", entry.uid, manifest.digest)
        return manifest.digest

    async def _note_cost(self, digest: ContentDigest, cost: LoadCost | None) -> None:
        """What it took is what it would take again, should the content be evicted."""
        if cost is not None:
            await self.thread.call(self.store.history.note_load, digest, cost)

    async def propose(self, entry: EntrySpec, digest: ContentDigest) -> None:
        """Ask the operator to adopt the digest, and note its answer.

        Bytes that are not the version's content are no longer held for it: the setback over, they
        are fetched again, because they may have been damaged on their way.
        """
        origin = Origin(entry.uid, entry.source_digest, adopted=True)
        try:
            record = await self.thread.call(self.store.load_record, digest)
            refusal = await self._ask(entry, record.manifest)
            if refusal is None:
                await self.thread.call(self.store.add_origin, digest, origin)
            elif refusal.reason is Reason.DIGEST_MISMATCH:
                await self.thread.call(self.store.drop_origin, digest, origin)
        except (OSError, ValueError) as error:
            message = f"the record cannot be read or written: {describe_error(error)}"
            raise TransferFailedError(Reason.STORE_ERROR, message, _STORE_SECONDS) from error
        if refusal is not None:
            raise refusal

    async def _ask(self, entry: EntrySpec, content: ContentManifest) -> TransferFailedError | None:
        """Why the content is not adopted, or None."""
        try:
            adopted = await self.grants.propose(entry, content)
        except GrantUnavailableError as error:
            return _failed(error)
        if adopted == content.digest:
            return None
        message = f"the bytes have {content.digest}, another node's {adopted} was adopted"
        return TransferFailedError(Reason.DIGEST_MISMATCH, message, None)


def _assemble(source: SourceManifest, contents: dict[str, ContentFile]) -> ContentManifest:
    """The content of all files of the source. The engine promises to have fetched each."""
    return make_content_manifest(contents[file.path] for file in source.files)


def _failed(error: GrantUnavailableError) -> TransferFailedError:
    return TransferFailedError(error.reason, error.message, error.retry_after_seconds)
