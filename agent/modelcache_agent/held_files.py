"""Files of a version whose bytes are on this node already, as another version's. Blocking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from modelcache_agent.decide.possession import HeldFiles, sort_held
from modelcache_agent.ports.grants import OpenedGrant
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.known_pieces import find_pieces
from modelcache_api.manifest import ContentFile


def find_held(store: DiskStore, opened: OpenedGrant) -> HeldFiles:
    """What need not be fetched, or perhaps not.

    A source may state a file's sha256, but never its pieces: those are proposed as they are.

    Raises:
        OSError, ValueError: the record of another version cannot be read.
    """
    held = {
        path: content
        if content.pieces
        else replace(content, pieces=find_pieces(store, content.sha256))
        for path, content in opened.contents.items()
        if _find_blob(store, content) is not None
    }
    return sort_held(held, is_adopted=opened.content_digest is not None)


def find_blobs(store: DiskStore, contents: Mapping[str, ContentFile]) -> Mapping[str, Path]:
    """Where the bytes lie of those that are still here, by the path in their version."""
    found = {path: _find_blob(store, content) for path, content in contents.items()}
    return {path: blob for path, blob in found.items() if blob is not None}


def _find_blob(store: DiskStore, content: ContentFile) -> Path | None:
    return store.find_blob(content.sha256, content.size_bytes)
