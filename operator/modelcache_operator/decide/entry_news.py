"""What a node's report says anew of its entries, and what of it may wait for others. Pure."""

from __future__ import annotations

from modelcache_api.names import EntryState
from modelcache_api.v1alpha1.cache_node import EntryStatus


def is_loss(was: EntryStatus | None, became: EntryStatus | None) -> bool:
    """True if a verified copy is none any more, is another one or is slower, or if one has failed.

    All else is on its way, and of that only where it leads to matters.
    """
    if became is not None and became.state is EntryState.FAILED:
        return was is None or was.state is not EntryState.FAILED
    if was is None or was.state is not EntryState.CACHED:
        return False
    if became is None or became.state is not EntryState.CACHED:
        return True
    return became.content_digest != was.content_digest or _speed(became) < _speed(was)


def _speed(entry: EntryStatus) -> int:
    return -1 if entry.tier is None else entry.tier.speed
