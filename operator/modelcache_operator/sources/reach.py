"""Which servers a version's source may lead to: pure."""

from __future__ import annotations

from typing import Final

from modelcache_api.egress import is_loopback_host
from modelcache_api.names import Reason
from modelcache_operator.decide.allowed_sources import (
    AllowList,
    Reach,
    Refusal,
    SourceRequest,
    decide_reach,
    describe_refused_address,
)
from modelcache_operator.decide.world import ModelVersionView
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.origin import Origin

_LOOPBACK: Final = "127.0.0.1"


def find_reach(allow_list: AllowList, version: ModelVersionView, origin: Origin) -> Reach | Refusal:
    """What the administrator's rules say to that version's source at that server."""
    request = SourceRequest(version.key.namespace, version.spec.source.uri, origin.authority)
    return decide_reach(allow_list, request)


def require_reach(allow_list: AllowList, version: ModelVersionView, origin: Origin) -> Reach:
    """The same for the server that the version names itself.

    Raises:
        SourceError: SourceNotAllowed.
    """
    reach = find_reach(allow_list, version, origin)
    if isinstance(reach, Refusal):
        raise SourceError(Reason.SOURCE_NOT_ALLOWED, reach.message)
    # Agents trust such a spelling, and some addresses are given out without a connection of ours.
    if is_loopback_host(origin.host):
        why = describe_refused_address(_LOOPBACK, reach)
        if why is not None:
            raise SourceError(Reason.SOURCE_NOT_ALLOWED, f"{origin.host} is this machine: {why}")
    return reach
