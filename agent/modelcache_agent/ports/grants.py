"""The operator, as agents see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from modelcache_agent.fetch import GrantProvider
from modelcache_api.manifest import ContentDigest, ContentFile, ContentManifest, SourceManifest
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import Holder


@dataclass(frozen=True, slots=True)
class OpenedGrant:
    """Leave to read one version: its files, and their contents where they are known, by path."""

    source: SourceManifest
    contents: Mapping[str, ContentFile]
    content_digest: ContentDigest | None
    ca_bundle: str | None


class MustWaitError(Exception):
    """Another node reads the source; there is nothing to fetch before it is done.

    `holders` names it, once it is known how to reach it.
    """

    def __init__(self, holders: tuple[Holder, ...]) -> None:
        super().__init__("another node reads the source")
        self.holders = holders


class Grants(GrantProvider, Protocol):
    """Also the fetch engine's provider of signed URLs."""

    async def open(self, entry: EntrySpec, waited_seconds: float = 0.0) -> OpenedGrant:
        """All pages of the entry's grant, checked against its sourceDigest.

        Raises:
            GrantUnavailableError: there is none, or it is not for this entry.
            MustWaitError: only if this agent reads from others.
        """
        ...

    def forget(self, uid: str) -> None:
        """Drop the URLs kept for a version."""
        ...

    async def propose(self, entry: EntrySpec, content: ContentManifest) -> ContentDigest:
        """Propose the content; the digest that is adopted, which may be another one.

        Raises:
            GrantUnavailableError: no answer, or a refusal with its reason.
        """
        ...
