"""Models as the agent's code sees them: contents with a digest and an entry."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from modelcache_agent.decide.ledger import Blob
from modelcache_api.manifest import ContentDigest, digest_hex
from modelcache_api.v1alpha1.cache_node import EntrySpec


@dataclass(frozen=True, slots=True)
class Content:
    """One model of a trace. Models share no bytes here."""

    model: str
    digest: ContentDigest
    size_bytes: int
    blobs: frozenset[Blob]
    entry: EntrySpec


def make_content(model: str, size_bytes: int) -> Content:
    """The same name and size give the same content in every run."""
    hexadecimal = hashlib.sha256(model.encode()).hexdigest()
    return _make(model, ContentDigest(f"sha256:{hexadecimal}"), size_bytes)


def make_known_content(digest: str, size_bytes: int) -> Content:
    """A content of a real node, by its own digest."""
    return _make(digest, ContentDigest(digest), size_bytes)


def _make(model: str, digest: ContentDigest, size_bytes: int) -> Content:
    hexadecimal = digest_hex(digest)
    entry = EntrySpec(
        uid=hexadecimal[:36], source_digest=digest, content_digest=digest, size_bytes=size_bytes
    )
    blobs = frozenset({Blob(hexadecimal, size_bytes)})
    return Content(model, digest, size_bytes, blobs, entry)
