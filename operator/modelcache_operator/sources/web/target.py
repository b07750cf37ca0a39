"""One version's web server, as allowed and trusted now: pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from modelcache_api.names import Reason
from modelcache_operator.decide.allowed_sources import AllowList, Reach, describe_refused_address
from modelcache_operator.decide.world import ModelVersionView
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.reach import require_reach
from modelcache_operator.sources.web.location import WebLocation, parse_web_uri


@dataclass(frozen=True, slots=True)
class WebTarget:
    """Where, and whom to trust there. `checkpoint` raises when the answers are not wanted."""

    location: WebLocation
    reach: Reach
    ca_bundle: str | None
    connections_key: Hashable
    """Calls with the same key may share connections."""

    checkpoint: Callable[[], None] = lambda: None

    def judge(self, host: str, port: int, address: str) -> str | None:
        """Why no connection for that host may lead to the address, or None.

        Rights to loopback end with the server that they are for, as they do on the nodes.
        """
        own = self.location.origin
        reach = self.reach if (own.host, own.port) == (host, port) else Reach()
        return describe_refused_address(address, reach)


def find_place(version: ModelVersionView, allow_list: AllowList) -> tuple[WebLocation, Reach]:
    """What the version names, if the administrator allows it.

    Raises:
        SourceError: SourceInvalid or SourceNotAllowed.
    """
    try:
        location = parse_web_uri(version.spec.source.uri)
    except ValueError as error:
        raise SourceError(Reason.SOURCE_INVALID, str(error)) from None
    return location, require_reach(allow_list, version, location.origin)
