"""What the sockets of a node did, for metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from modelcache_api.names import SocketReason


@dataclass(slots=True)
class SocketCounters:
    """`connections`, by their kind, `attached` and `index_bytes` are those of now.

    All else is since the start. `readers` and `controls` are the connections that have said hello.
    """

    connections: int = 0
    readers: int = 0
    controls: int = 0
    attached: int = 0
    accepted: int = 0
    demands: int = 0
    indexes: int = 0
    devices: int = 0
    index_bytes: int = 0
    refusals: Counter[SocketReason] = field(default_factory=Counter)
