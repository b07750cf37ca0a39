"""What the sockets of a node did, for metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from modelcache_api.names import SocketReason


@dataclass(slots=True)
class SocketCounters:
    """`connections`, `attached` and `index_bytes` are those of now, all else since the start."""

    connections: int = 0
    attached: int = 0
    accepted: int = 0
    demands: int = 0
    indexes: int = 0
    devices: int = 0
    index_bytes: int = 0
    refusals: Counter[SocketReason] = field(default_factory=Counter)
