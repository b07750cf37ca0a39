"""One version's hub, as allowed and accessible now: pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from modelcache_api.names import Reason
from modelcache_operator.decide.allowed_sources import (
    AllowList,
    Reach,
    Refusal,
    describe_refused_address,
)
from modelcache_operator.decide.world import ModelVersionView
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.access import Access
from modelcache_operator.sources.hub.endpoint import HubEndpoint, parse_endpoint
from modelcache_operator.sources.hub.location import HubLocation, parse_hub_uri
from modelcache_operator.sources.origin import Origin
from modelcache_operator.sources.reach import find_reach, require_reach


@dataclass(frozen=True, slots=True)
class HubTarget:
    """Where, what and whose token. `allow_list` is asked anew for each server redirected to."""

    version: ModelVersionView
    location: HubLocation
    endpoint: HubEndpoint
    reach: Reach
    access: Access[str]
    allow_list: Callable[[], AllowList]

    @property
    def connections_key(self) -> Hashable:
        """Calls with the same key may share connections."""
        source = (self.version.key.namespace, self.version.spec.source.uri)
        return (*source, self.endpoint, self.reach, self.access.ca_bundle)

    @property
    def files_key(self) -> tuple[Hashable, ...]:
        """Calls with the same key see the same files."""
        return (self.version.uid, self.endpoint, self.reach, self.access.revision)

    def reach_of(self, origin: Origin) -> Reach:
        """What connections to that server may lead to.

        Where a hub redirects is its own matter, but for loopback: that takes a rule which covers
        the very server.
        """
        if origin == self.endpoint.origin:
            return self.reach
        found = find_reach(self.allow_list(), self.version, origin)
        return Reach() if isinstance(found, Refusal) else found

    def judge(self, host: str, port: int, address: str) -> str | None:
        """Why no connection for that host may lead to the address, or None."""
        own = self.endpoint.origin
        is_own = (own.host, own.port) == (host, port)
        origin = own if is_own else Origin("", host, port)
        return describe_refused_address(address, self.reach_of(origin))


def find_place(
    version: ModelVersionView, default_endpoint: str, allow_list: AllowList
) -> tuple[HubLocation, HubEndpoint, Reach]:
    """What the version names, if the administrator allows it.

    Raises:
        SourceError: SourceInvalid or SourceNotAllowed.
    """
    source = version.spec.source
    try:
        location = parse_hub_uri(source.uri)
    except ValueError as error:
        raise SourceError(Reason.SOURCE_INVALID, str(error)) from None
    endpoint = parse_endpoint(source.endpoint or default_endpoint)
    return location, endpoint, require_reach(allow_list, version, endpoint.origin)
