"""Bytes received by payer and server, for egress bills. No series outlives its versions."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from modelcache_agent.decide.measures import LoadSource

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOST: Final = re.compile(r"[a-z0-9_.:-]{1,253}")
_PORTS: Final = {"http": 80, "https": 443}
# A node has 256 entries, nearly always of few servers; what is more is counted under one name.
_MOST_SERIES: Final = 256
OTHER: Final = "other"
# All other nodes together: their addresses come and go, and cost nothing.
PEERS: Final = "peers"


def name_source(url: str) -> str:
    """The server of a granted URL: scheme, host, and port if it is not the scheme's own.

    A signed URL is a secret, and a path may be anything: neither user, path nor query is kept. In
    virtual-hosted addressing the host names the bucket.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return OTHER
    if parts.scheme not in _PORTS or _HOST.fullmatch(host) is None:
        return OTHER
    where = f"[{host}]" if ":" in host else host
    suffix = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{where}{suffix}"


class EgressBook:
    """Thread-safe totals by (namespace, source).

    A total never shrinks while an entry it was counted for is there: a counter that fell would
    read as a restart, and bills would be too high.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: Counter[tuple[str, str]] = Counter()
        self._entries: dict[tuple[str, str], set[str]] = {}
        self._kinds: dict[str, set[LoadSource]] = {}
        self._begun: dict[str, float] = {}

    def add(self, uid: str, namespace: str, source: str, amount: int) -> None:
        """Count bytes that were received for this entry."""
        series = (namespace, source)
        kind = LoadSource.PEERS if source == PEERS else LoadSource.ORIGIN
        with self._lock:
            if amount:
                self._kinds.setdefault(uid, set()).add(kind)
            if series not in self._entries and len(self._entries) >= _MOST_SERIES:
                series = (namespace, OTHER)
            self._totals[series] += amount
            self._entries.setdefault(series, set()).add(uid)

    def begin(self, uid: str, now: float) -> float:
        """When bringing the entry here began: now, unless former tries of the same load failed."""
        with self._lock:
            return self._begun.setdefault(uid, now)

    def take_source(self, uid: str) -> LoadSource:
        """Where the entry's bytes came from since this was asked last. The load is over."""
        with self._lock:
            kinds = self._kinds.pop(uid, set())
            self._begun.pop(uid, None)
        if len(kinds) > 1:
            return LoadSource.MIXED
        return next(iter(kinds), LoadSource.HERE)

    def keep(self, uids: frozenset[str], loading: frozenset[str]) -> None:
        """Drop the totals of which no entry is left, and the tries of what is not loading now."""
        with self._lock:
            self._kinds = {uid: kinds for uid, kinds in self._kinds.items() if uid in uids}
            self._begun = {uid: at for uid, at in self._begun.items() if uid in loading}
            for series, entries in tuple(self._entries.items()):
                entries.intersection_update(uids)
                if not entries:
                    del self._entries[series], self._totals[series]

    def snapshot(self) -> Mapping[tuple[str, str], int]:
        """All totals at one moment."""
        with self._lock:
            return dict(self._totals)
