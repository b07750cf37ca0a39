"""A watch that lives longer than its connections."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from enum import StrEnum
from typing import Any, Final, NamedTuple

from modelcache_kube.backoff import Backoff
from modelcache_kube.errors import ApiUnavailable, Expired, KubeError, make_error
from modelcache_kube.resources import Resource
from modelcache_kube.transport import Transport

# The server ends a watch after this long (spread, so that clients do not come back together).
_SERVER_SECONDS: Final = 240.0
# A bookmark comes about every minute: silence of two means that the connection is dead.
_IDLE_SECONDS: Final = 130.0
_MARGIN_SECONDS: Final = 30.0
_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 30.0

Key = tuple[str, str]


class Change(StrEnum):
    """What happened to the object. SYNCED carries none: a complete list has been told."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    SYNCED = "SYNCED"


class WatchEvent(NamedTuple):
    """One change, with the object after it (before it, for DELETED)."""

    type: Change
    object: dict[str, Any]


class Watcher:
    """Lists, then watches, and again for ever.

    What the consumer can rely on: the first events are the objects that are there, then SYNCED;
    each later change of an object is told at least by its latest state; objects that vanished
    while there was no connection are told as DELETED after the next list. Unchanged objects are
    not told twice. No failure ends it: each goes to `on_error`, and is followed by a wait
    (jittered, doubling to 30 s, or what Retry-After says).
    """

    def __init__(
        self,
        transport: Transport,
        resource: Resource,
        namespace: str | None,
        query: Mapping[str, str],
        *,
        on_error: Callable[[KubeError], None] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._transport = transport
        self._resource = resource
        self._path = resource.path(namespace=namespace)
        self._query = dict(query)
        self._on_error = on_error or (lambda _error: None)
        self._sleep = sleep
        self._uniform = uniform
        self._backoff = Backoff(_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS, uniform)
        self._known: dict[Key, dict[str, Any]] = {}
        self._version: str | None = None
        self._heard = False

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """The changes. Close the iterator (`aclosing`, or cancel the task) to end it."""
        while True:
            try:
                if self._version is None:
                    for event in await self._relist():
                        yield event
                async with aclosing(self._follow()) as changes:
                    async for event in changes:
                        yield event
            except KubeError as error:
                self._on_error(error)
                if not isinstance(error, Expired):
                    await self._sleep(self._backoff.next_delay(error.retry_after))
            else:
                if not self._heard:
                    # Something in between ends connections at once: do not hammer it.
                    self._on_error(ApiUnavailable("the watch ended without a word"))
                    await self._sleep(self._backoff.next_delay())

    async def _relist(self) -> list[WatchEvent]:
        """What differs from what was told, then SYNCED."""
        page = await self._transport.request(
            "GET", self._path, verb="list", plural=self._resource.plural, query=self._query
        )
        found = {_key(item): self._typed(item) for item in page.get("items") or ()}
        events = [
            WatchEvent(Change.DELETED, old) for key, old in self._known.items() if key not in found
        ]
        for key, item in found.items():
            events += self._difference(key, item)
        self._known = {key: _trim(item) for key, item in found.items()}
        self._version = page.get("metadata", {}).get("resourceVersion", "")
        return [*events, WatchEvent(Change.SYNCED, {})]

    def _difference(self, key: Key, item: dict[str, Any]) -> list[WatchEvent]:
        old = self._known.get(key)
        if old is None:
            return [WatchEvent(Change.ADDED, item)]
        before, after = old["metadata"], item["metadata"]
        if before.get("uid") != after.get("uid"):
            return [WatchEvent(Change.DELETED, old), WatchEvent(Change.ADDED, item)]
        if before.get("resourceVersion") != after.get("resourceVersion"):
            return [WatchEvent(Change.MODIFIED, item)]
        return []

    async def _follow(self) -> AsyncGenerator[WatchEvent, None]:
        """One connection's worth of changes. Leaves `_version` None if a new list is needed."""
        seconds = self._uniform(_SERVER_SECONDS, 1.5 * _SERVER_SECONDS)
        query = self._query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(int(seconds)),
        }
        # Taken back only once the watch is open: a server that refuses this version (compacted,
        # or restored from a backup) must not be asked for it for ever.
        version, self._version = self._version, None
        self._heard = False
        async with self._transport.stream(
            self._path,
            plural=self._resource.plural,
            query=query,
            total_seconds=seconds + _MARGIN_SECONDS,
            idle_seconds=_IDLE_SECONDS,
        ) as lines:
            self._version = version
            async for line in lines:
                event = self._take(line)
                self._heard = True
                self._backoff.reset()
                if event is not None:
                    yield event

    def _take(self, line: Mapping[str, Any]) -> WatchEvent | None:
        kind, item = line.get("type"), line.get("object") or {}
        if kind == "ERROR":
            self._version = None
            raise make_error(int(item.get("code") or 500), _encode(item))
        self._version = item.get("metadata", {}).get("resourceVersion") or self._version
        if kind == "BOOKMARK":
            return None
        key = _key(item)
        if kind == "DELETED":
            self._known.pop(key, None)
        else:
            self._known[key] = _trim(item)
        return WatchEvent(Change(str(kind)), item)

    def _typed(self, item: dict[str, Any]) -> dict[str, Any]:
        """Items of a list lack what their objects say of themselves."""
        return {"apiVersion": self._resource.api_version, "kind": self._resource.kind, **item}


def _key(item: Mapping[str, Any]) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _trim(item: Mapping[str, Any]) -> dict[str, Any]:
    """What a later DELETED must say; the rest would be a second copy of everything."""
    kept = ("name", "namespace", "uid", "resourceVersion")
    metadata = {key: value for key, value in item["metadata"].items() if key in kept}
    return {
        "apiVersion": item.get("apiVersion", ""),
        "kind": item.get("kind", ""),
        "metadata": metadata,
    }


def _encode(status: Mapping[str, Any]) -> bytes:
    return json.dumps(status).encode()
