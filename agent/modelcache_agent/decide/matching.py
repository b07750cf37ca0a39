"""Which held content is an entry's content. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelcache_agent.decide.world import Held
    from modelcache_api.v1alpha1.cache_node import EntrySpec


_BEYOND_QUOTA: Final = -1


@dataclass(frozen=True, slots=True)
class Match:
    """A held content, and whether the operator knows it to be the entry's."""

    held: Held
    is_adopted: bool


def find_standing(entries: Sequence[EntrySpec], matches: Mapping[str, Match]) -> Mapping[str, int]:
    """By digest, the rank of the highest priority that wants the content.

    Below all of them is what only namespaces want that are beyond their quotas.
    """
    standing: dict[str, int] = {}
    for entry in entries:
        if entry.uid in matches:
            digest = matches[entry.uid].held.digest
            rank = standing_of(entry)
            standing[digest] = max(standing.get(digest, rank), rank)
    return standing


def standing_of(entry: EntrySpec) -> int:
    """The rank of its priority; below all of them if its namespaces are beyond their quotas."""
    return _BEYOND_QUOTA if entry.over_quota else entry.priority.rank


def match_entries(entries: Sequence[EntrySpec], held: Sequence[Held]) -> Mapping[str, Match]:
    """The content of each entry that has one here, by the entry's uid.

    A known contentDigest decides alone. Without one, bytes count only if they were read from this
    very version's source.
    """
    by_digest: dict[str, Held] = {content.digest: content for content in held}
    by_origin = {
        (origin.uid, origin.source_digest): Match(content, origin.adopted)
        for content in held
        for origin in content.origins
    }
    matches: dict[str, Match] = {}
    for entry in entries:
        if entry.content_digest is None:
            match = by_origin.get((entry.uid, entry.source_digest))
        else:
            content = by_digest.get(entry.content_digest)
            match = None if content is None else Match(content, is_adopted=True)
        if match is not None:
            matches[entry.uid] = match
    return matches
