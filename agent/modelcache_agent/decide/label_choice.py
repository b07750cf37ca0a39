"""Which labels the Node may carry. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelcache_api.limits import MAX_LABELS_PER_NODE
from modelcache_api.names import NODE_LABEL_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modelcache_agent.decide.matching import Match
    from modelcache_api.v1alpha1.cache_node import EntrySpec


def choose_labels(
    entries: Iterable[EntrySpec],
    matches: Mapping[str, Match],
    *,
    condemned: frozenset[str],
    limit: int = MAX_LABELS_PER_NODE,
) -> frozenset[str]:
    """Keys of the entries whose very contentDigest is verified here and is to stay.

    Beyond the limit the first by name win, so that the choice depends neither on the order of
    entries nor on what happened before, and a restart changes no label.
    """
    true_keys = {
        entry.label_key
        for entry in entries
        if entry.label_key is not None
        and entry.label_key.startswith(NODE_LABEL_PREFIX)
        and _is_true(entry, matches.get(entry.uid), condemned)
    }
    return frozenset(sorted(true_keys)[:limit])


def _is_true(entry: EntrySpec, match: Match | None, condemned: frozenset[str]) -> bool:
    return (
        match is not None
        and match.held.is_verified
        and match.held.digest == entry.content_digest
        and match.held.digest not in condemned
    )
