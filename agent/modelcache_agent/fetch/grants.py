"""Leave to read, for the stream threads: one grant a file, renewed before it expires."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.transfer_plan import must_refresh
from modelcache_agent.fetch.job import GrantUnavailableError
from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError, bound, show
from modelcache_agent.fetch.scheduler import StoppedError
from modelcache_api.names import Reason
from modelcache_api.quoted import quote

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from modelcache_agent.fetch.clock import Clock
    from modelcache_agent.fetch.config import FetchConfig
    from modelcache_agent.fetch.counters import CounterBoard
    from modelcache_agent.fetch.file_state import FileState
    from modelcache_agent.fetch.job import GrantProvider
    from modelcache_agent.fetch.job_state import JobState
    from modelcache_api.wire import GrantedFile

# How often a stream that waits for a grant looks whether its job was stopped.
_POLL_SECONDS: Final = 0.2


class GrantDesk:
    """Asks the provider on its event loop, from stream threads."""

    def __init__(
        self,
        provider: GrantProvider,
        loop: asyncio.AbstractEventLoop,
        config: FetchConfig,
        clock: Clock,
        counters: CounterBoard,
    ) -> None:
        self._provider = provider
        self._loop = loop
        self._config = config
        self._clock = clock
        self._counters = counters

    def get(self, job: JobState, file: FileState) -> GrantedFile:
        """A grant that is good for at least one more part. Blocks.

        Raises:
            RefusalError: there is none, or it is for another identity of the file.
            StoppedError: the job was stopped meanwhile.
        """
        with file.grant_lock:
            margin = self._config.refresh_margin_seconds
            grant = file.grant
            if grant is not None and not must_refresh(grant.expires_at, self._clock.now(), margin):
                return grant
            uid, path = job.spec.uid, file.path
            if grant is None and not file.grant_was_refreshed and file.failures == 0:
                grant = self._ask(job, file, self._provider.current(uid, path))
            if (
                grant is None
                or file.grant_was_refreshed
                or must_refresh(grant.expires_at, self._clock.now(), margin)
            ):
                grant = self._ask(job, file, self._provider.refresh(uid, path))
                self._counters.add("refreshed_grants")
            _check_identity(file, grant)
            file.grant = grant
            return grant

    def renew(self, job: JobState, file: FileState) -> None:
        """Ask for a new grant now, for what it says of other nodes. Blocks.

        Raises: as `get`.
        """
        with file.grant_lock:
            grant = self._ask(job, file, self._provider.refresh(job.spec.uid, file.path))
            _check_identity(file, grant)
            file.grant = grant

    def _ask(
        self, job: JobState, file: FileState, question: Coroutine[None, None, GrantedFile]
    ) -> GrantedFile:
        name = quote(file.path)
        future = asyncio.run_coroutine_threadsafe(question, self._loop)
        deadline = self._clock.monotonic() + self._config.grant_timeout_seconds
        try:
            while True:
                try:
                    return future.result(_POLL_SECONDS)
                except concurrent.futures.TimeoutError:
                    if job.is_stopped:
                        raise StoppedError from None
                    if self._clock.monotonic() >= deadline:
                        raise
        except GrantUnavailableError as error:
            seconds = error.retry_after_seconds
            refusal = Refusal(
                error.reason, bound(error.message), Cure.NONE, least_pause_seconds=seconds or 0.0
            )
            raise RefusalError(refusal) from None
        except concurrent.futures.TimeoutError:
            message = f"{name}: no grant came in time"
            raise RefusalError(Refusal(Reason.OPERATOR_UNREACHABLE, message)) from None
        except concurrent.futures.CancelledError:
            raise StoppedError from None
        finally:
            future.cancel()


def _check_identity(file: FileState, grant: GrantedFile) -> None:
    source = file.spec.source
    if (grant.size_bytes, grant.etag, grant.version_id, grant.last_modified) != (
        source.size_bytes,
        source.etag,
        source.version_id,
        source.last_modified,
    ):
        message = (
            f"{quote(file.path)}: the grant is for another object than the manifest's:"
            f" {grant.size_bytes} bytes, ETag {show(grant.etag or 'none', 80)}, against"
            f" {source.size_bytes} bytes, ETag {show(source.etag or 'none', 80)}"
        )
        raise RefusalError(Refusal(Reason.SOURCE_CHANGED, message, Cure.NONE))
