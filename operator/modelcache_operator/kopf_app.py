"""The only door to kopf: its watches feed the watch cache, and nothing else of it is used.

kopf runs on an event loop and thread of its own, because it cancels every task of its loop when
it stops, and it stops when the API server refuses a list or a token for longer than it likes. Here
it is started again with a delay that grows; meanwhile everything else goes on.

kopf tells of no deletion that happened while its watch was down (`adapters/relist.py` does), and
its on-event handlers touch no object: no finalizer, no annotation, no Event.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import aiohttp
import kopf
from kopf._cogs.configs.diffbase import DiffBaseStorage
from kopf._cogs.configs.progress import ProgressStorage
from kopf._cogs.structs.bodies import BodyEssence
from kopf._core.engines.peering import Identity

from modelcache_api import names
from modelcache_operator.adapters.parsing import (
    Observed,
    ObservedKind,
    Raw,
    parse_object,
    read_version,
)
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.adapters.watch_health import WatchHealth
from modelcache_operator.adapters.watch_trace import trace_watches
from modelcache_operator.decide.world import ObjectKey, Uid
from modelcache_operator.ports.login import ApiLogin

_log = logging.getLogger(__name__)

_WATCHED: Final = (
    (names.GROUP, names.VERSION, ObservedKind.MODEL_VERSIONS),
    (names.GROUP, names.VERSION, ObservedKind.MODEL_CACHES),
    (names.GROUP, names.VERSION, ObservedKind.QUOTAS),
    (names.GROUP, names.VERSION, ObservedKind.CACHE_NODES),
    ("", "v1", ObservedKind.NODES),
)
# As for our own lists: what the API server sends of a chunk is in memory at once.
_CHUNK: Final = 200
_CONNECT_SECONDS: Final = 5.0
_REQUEST_SECONDS: Final = 60.0
# Ended by the server after this time, so that a token that has expired is not used for ever.
_WATCH_SECONDS: Final = 600  # whole seconds: it goes into the URL as it is
_FIRST_RESTART_SECONDS: Final = 1.0
_LONGEST_RESTART_SECONDS: Final = 30.0
# A run that lasted this long had worked: the next failure is a new one.
_WORKED_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 15.0
Told = Callable[[], None]
_IDENTITY: Final = Identity("modelcache-operator")


class _PatientDelays(Iterable[float]):
    """Delays between the tries of one request; without end, so that kopf never gives up."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1.0, 2.0)
        while True:
            yield 5.0


class _NoDiffBase(DiffBaseStorage):
    """Remembers nothing; on-event handlers need no memory of what was handled."""

    def build(self, **_: Any) -> BodyEssence:
        return BodyEssence()

    def fetch(self, **_: Any) -> BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        return None


class _NoProgress(ProgressStorage):
    """Remembers nothing."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        return essence


class KopfInformer:
    """Watches on a thread of its own. `on_relist` is called when kopf has had to list again."""

    def __init__(
        self,
        login: Callable[[], Awaitable[ApiLogin]],
        cache: WatchCache,
        watches: WatchHealth,
        *,
        on_relist: Callable[[], None],
        on_event: Callable[[str], None],
    ) -> None:
        self._login = login
        self._cache = cache
        self._watches = watches
        self._on_relist = on_relist
        self._on_event = on_event
        self._logged_in: tuple[ApiLogin, kopf.AiohttpSession] | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._is_ending = False
        self._has_listed: set[ObservedKind] = set()

    def start(self) -> None:
        """Begin to watch. To be called on the event loop to which the watch cache belongs."""
        self._home = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run_thread, name="kopf", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True while the thread runs, and before it was started."""
        return self._thread is None or self._thread.is_alive()

    def restart(self) -> None:
        """End the present run of kopf; the next one looks anew for the resources."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    async def stop(self) -> None:
        """End the watches and wait for the thread."""
        self._is_ending = True
        self.restart()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _STOP_SECONDS)

    def _run_thread(self) -> None:
        asyncio.run(self._supervise())

    async def _supervise(self) -> None:
        """Run kopf again and again until told to end."""
        self._loop = loop = asyncio.get_running_loop()
        delay = _FIRST_RESTART_SECONDS
        while not self._is_ending:
            started = loop.time()
            self._stop = asyncio.Event()
            try:
                await self._run_kopf(self._stop)
            except Exception as error:  # noqa: BLE001 - whatever it was, watching must go on
                _log.warning("the watches broke off: %s: %s", type(error).__name__, error)
            if self._is_ending:
                return
            if loop.time() - started > _WORKED_SECONDS:
                delay = _FIRST_RESTART_SECONDS
            _log.info("starting the watches again in %.0f s", delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_RESTART_SECONDS)

    async def _run_kopf(self, stop: asyncio.Event) -> None:
        try:
            await kopf.operator(
                registry=self._make_registry(),
                settings=_make_settings(),
                clusterwide=True,
                standalone=True,
                # Else kopf asks who the user is, and the image's has no name.
                identity=_IDENTITY,
                stop_flag=stop,
            )
        finally:
            await self._log_out()
            for _, _, kind in _WATCHED:
                self._hand_over(self._watches.closed, kind.value)

    def _make_registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, retries=3, backoff=2)(self._log_in)
        for group, version, kind in _WATCHED:
            kopf.on.event(group, version, kind.value, registry=registry, id=f"observe-{kind}")(
                self._make_handler(kind)
            )
        return registry

    async def _log_in(self, **_: Any) -> kopf.AiohttpSession:
        """Called at the start and after each 401: credentials are read anew each time.

        The same ones make the same session: kopf knows by it that they were refused, and ends
        instead of asking for ever.
        """
        login = await self._login()
        if self._logged_in is None or self._logged_in[0] != login:
            await self._log_out()
            trace = trace_watches(
                partial(self._hand_over, self._watches.opened),
                partial(self._hand_over, self._watches.closed),
            )
            session = _open_session(login, trace)
            info = kopf.AiohttpSession(server=login.server, aiohttp_session=session)
            self._logged_in = (login, info)
        return self._logged_in[1]

    async def _log_out(self) -> None:
        """Close the session; kopf may have done so."""
        if self._logged_in is not None:
            await self._logged_in[1].aiohttp_session.close()
            self._logged_in = None

    def _make_handler(self, kind: ObservedKind) -> Callable[..., Awaitable[None]]:
        async def observe(event: Any, **_: Any) -> None:
            self._pass_on(kind, event["type"], event["object"])

        return observe

    def _pass_on(self, kind: ObservedKind, change: str | None, raw: Raw) -> None:
        """Parse here, on kopf's thread; hand over to the loop that owns the watch cache."""
        metadata = raw["metadata"]
        key = ObjectKey(metadata.get("namespace", ""), metadata["name"])
        if change == "DELETED":
            told: Told = partial(self._cache.forget, kind, key, Uid(metadata["uid"]))
        elif self._cache.version_of(kind, key) == read_version(raw):
            # Mostly the answer to a write of ours was here before it.
            told = partial(self._note_repeated, kind, is_listed=change is None)
        else:
            told = partial(self._observe, parse_object(kind, raw), is_listed=change is None)
        # Once for all of it: each time wakes the other loop.
        self._hand_over(self._take, kind, told, change is None)

    def _take(self, kind: ObservedKind, told: Told, is_listed: bool) -> None:  # noqa: FBT001
        if not is_listed:
            self._watches.heard(kind.value)
        told()
        self._on_event(kind.value)

    def _observe(self, seen: Observed, *, is_listed: bool) -> None:
        known = self._cache.version_of(seen.kind, seen.key)
        self._cache.observe(seen)
        # The first list repeats what we have listed ourselves; a later one that brings news
        # means that a watch had been lost, and deletions with it.
        if not is_listed:
            self._has_listed.add(seen.kind)
        elif seen.kind in self._has_listed and known != seen.version:
            self._on_relist()

    def _note_repeated(self, kind: ObservedKind, *, is_listed: bool) -> None:
        if not is_listed:
            self._has_listed.add(kind)

    def _hand_over(self, act: Callable[..., None], *arguments: object) -> None:
        if self._home is None:
            return
        try:
            self._home.call_soon_threadsafe(act, *arguments)
        except RuntimeError:
            _log.debug("the event loop is closed: a late event is dropped")


def _open_session(login: ApiLogin, trace: aiohttp.TraceConfig) -> aiohttp.ClientSession:
    """A session as kopf would open it, and traced."""
    info = kopf.ConnectionInfo(
        server=login.server,
        ca_path=login.ca_file,
        insecure=login.is_insecure or None,
        scheme="Bearer" if login.token else None,
        token=login.token,
        certificate_path=login.certificate_file,
        private_key_path=login.key_file,
    )
    connector = aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context())
    return aiohttp.ClientSession(
        connector=connector, headers=info.as_http_headers(), trace_configs=[trace]
    )


def _make_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    settings.networking.error_backoffs = _PatientDelays()
    settings.networking.request_timeout = _REQUEST_SECONDS
    settings.networking.connect_timeout = _CONNECT_SECONDS
    settings.watching.connect_timeout = _CONNECT_SECONDS
    settings.watching.server_timeout = _WATCH_SECONDS
    settings.watching.client_timeout = _WATCH_SECONDS + _REQUEST_SECONDS
    settings.watching.chunk_size = _CHUNK
    # Workers of kopf only pass events on; while one lingers, it holds the object as it came.
    settings.queueing.idle_timeout = 0.1
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    return settings
