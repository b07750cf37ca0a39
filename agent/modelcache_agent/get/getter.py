"""Bringing one version into one folder: ask, look what is there, fetch the rest, show."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from modelcache_agent.decide.getting import Patience, describe_lack_of_room, find_held
from modelcache_agent.fetch import GrantUnavailableError
from modelcache_agent.get.target import Target
from modelcache_agent.get.telling import Teller
from modelcache_agent.tiers.errors import StoreError, describe_error
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_agent.transfers import Listeners, TransferFailedError, Transfers
from modelcache_api.manifest import ContentDigest
from modelcache_api.names import Reason
from modelcache_api.pod_wire import PodVersion
from modelcache_api.quantities import format_bytes
from modelcache_api.v1alpha1.cache_node import EntrySpec

_STORE_SECONDS: Final = 5.0


@dataclass(slots=True)
class Getter:
    """One run. `asked` is the name as it was given, `ask` puts the question to the operator."""

    asked: str
    ask: Callable[[], Awaitable[PodVersion]]
    target: Target
    thread: StoreThread
    transfers: Transfers
    teller: Teller
    patience: Patience
    stopping: threading.Event = field(default_factory=threading.Event)

    async def run(self) -> ContentDigest:
        """Until the model is there; the digest of its bytes.

        Raises:
            TransferFailedError: it is not, and trying on is of no use.
        """
        while True:
            try:
                return await self._try()
            except TransferFailedError as failure:
                pause = self.patience.pause(
                    failure.reason, failure.retry_after, self.teller.idle_seconds
                )
                if pause is None:
                    raise
                self.teller.say_waiting(f"waits: {failure.reason}: {failure.message}")
                await asyncio.sleep(pause)

    async def _try(self) -> ContentDigest:
        try:
            version = await self.ask()
        except GrantUnavailableError as error:
            return await self._do_without(error)
        try:
            digest = await self._find_held(version)
            if digest is None:
                digest = await self._fetch(version)
            else:
                self.teller.say("is held and verified here: nothing is fetched")
            await self.thread.call(self.target.show, digest, self.asked)
        except (StoreError, OSError) as error:
            message = f"the target cannot be read or written: {describe_error(error)}"
            raise TransferFailedError(Reason.STORE_ERROR, message, _STORE_SECONDS) from error
        return digest

    async def _do_without(self, error: GrantUnavailableError) -> ContentDigest:
        """While the operator is away, what was verified here before under that name is good."""
        shown = None
        if error.reason is Reason.OPERATOR_UNREACHABLE:
            shown = await self.thread.call(self.target.find_shown, self.asked)
        if shown is None:
            raise TransferFailedError(
                error.reason, error.message, error.retry_after_seconds
            ) from error
        self.teller.say(f"is taken as it was verified here before, because {error.message}")
        return shown.digest

    async def _find_held(self, version: PodVersion) -> ContentDigest | None:
        catalog = self.target.store.catalog
        held = find_held((one.held for one in catalog), version)
        stored = None if held is None else catalog.get(held.digest)
        if stored is None or stored.is_verified:
            return None if stored is None else stored.digest
        self.teller.say("does not look as it was recorded: hashing it again")
        is_sound = await self.thread.call(self.target.look_again, stored, self.stopping.is_set)
        self.teller.note_progress()
        return stored.digest if is_sound else None

    async def _fetch(self, version: PodVersion) -> ContentDigest:
        entry = EntrySpec(
            uid=version.uid or "",
            source_digest=version.source_digest or "",
            content_digest=version.content_digest,
            size_bytes=version.size_bytes,
        )
        await self._look_for_room(entry)
        known = "" if version.content_digest else "; no node has read it yet, its bytes are trusted"
        self.teller.say(
            f"is {version.namespace}/{version.name}, {format_bytes(version.size_bytes)}{known}"
        )
        listeners = Listeners(
            on_progress=self.teller.on_progress,
            on_state=self.teller.on_state,
            on_fetched=self.teller.note_progress,
            news=asyncio.Event(),
        )
        try:
            await self.transfers.fetch(entry, version.namespace or "", listeners)
        except TransferFailedError as failure:
            if failure.reason is Reason.DIGEST_MISMATCH:
                # Else the next run would find the same wrong bytes again.
                await self.thread.call(self.target.store.drop_partial, entry.uid)
            raise
        published = find_held((one.held for one in self.target.store.catalog), version)
        if published is None:
            raise StoreError("what was published is not there: run get again")
        return published.digest

    async def _look_for_room(self, entry: EntrySpec) -> None:
        """Before the first byte. What another version shares with this one cannot be known yet."""
        if any(self.target.store.catalog):
            return
        there, free = await self.thread.call(self.target.room, entry.uid)
        lack = describe_lack_of_room(entry.size_bytes, there, free)
        if lack is not None:
            raise TransferFailedError(Reason.INSUFFICIENT_SPACE, lack, None)
