"""Short-lived addresses of files, as the hub gives them out: pure, and those given a moment ago."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qs, urlsplit

from modelcache_api.egress import is_loopback_host
from modelcache_api.names import Reason
from modelcache_operator.decide.allowed_sources import Reach
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.hub.endpoint import HubEndpoint
from modelcache_operator.sources.origin import Origin, origin_of

_STAMP: Final = "%Y%m%dT%H%M%SZ"
# Parameters of signed addresses: a moment, or a beginning and a number of seconds.
_MOMENTS: Final = ("Expires",)
_SPANS: Final = (("X-Amz-Date", "X-Amz-Expires"), ("X-Goog-Date", "X-Goog-Expires"))


@dataclass(frozen=True, slots=True)
class FileAddress:
    """Where an agent reads a file. `url` None: the hub itself serves it, to the token alone."""

    url: str | None
    expires_at: float


def expiry_of(url: str, default: float) -> float:
    """When a signed address ends, in Unix seconds, as it says itself."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    for name in _MOMENTS:
        if (moment := query.get(name, "")).isdecimal():
            return float(moment[:12])
    for begin, seconds in _SPANS:
        if begin in query and (span := query.get(seconds, "")).isdecimal():
            try:
                start = datetime.strptime(query[begin], _STAMP).replace(tzinfo=UTC)
            except ValueError:
                continue
            return start.timestamp() + float(span[:9])
    return default


def check_target(endpoint: HubEndpoint, url: str, reach_of: Callable[[Origin], Reach]) -> None:
    """An agent may be sent there. What DNS makes of the name it judges itself.

    Raises:
        SourceError: SourceNotAllowed or SourceError.
    """
    origin = origin_of(url)
    if origin is None:
        raise SourceError(
            Reason.SOURCE_ERROR,
            f"{endpoint.origin.authority} sends readers of a file to no http or https address",
            retry_after_seconds=60.0,
        )
    if (endpoint.origin.scheme, origin.scheme) == ("https", "http"):
        raise SourceError(
            Reason.SOURCE_NOT_ALLOWED,
            f"{endpoint.origin.authority} redirects from https to http, which is refused",
        )
    # An agent trusts that whoever names its own machine was allowed to.
    if is_loopback_host(origin.host) and not reach_of(origin).may_reach_loopback:
        raise SourceError(
            Reason.SOURCE_NOT_ALLOWED,
            f"{endpoint.origin.authority} sends readers of a file to the loopback address "
            f"{origin.authority}: a rule of the administrator's allow-list with `loopback: true` "
            "must cover it",
        )


class RecentAddresses:
    """Addresses that were asked for a moment ago, so that many nodes cost the hub one question.

    They are given out again for half of their life, and no longer than `seconds`: one that a
    server stopped honouring early is then asked for anew. `clock` is Unix time, as the addresses
    have it; how long one is kept is measured on `monotonic`, because a step of the clock back
    would keep dead ones for as long.
    """

    def __init__(
        self,
        size: int,
        seconds: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._monotonic = monotonic
        self._found: OrderedDict[Hashable, tuple[FileAddress, float]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> FileAddress | None:
        """The address of that key, if it is recent."""
        with self._lock:
            address, until = self._found.get(key, (None, 0.0))
        return address if until > self._monotonic() else None

    def put(self, key: Hashable, address: FileAddress) -> None:
        """Remember it."""
        life = address.expires_at - self._clock()
        until = self._monotonic() + min(self._seconds, life / 2)
        with self._lock:
            self._found[key] = (address, until)
            self._found.move_to_end(key)
            while len(self._found) > self._size:
                self._found.popitem(last=False)
