"""Where manifests are kept: immutable, in the operator's own namespace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from modelcache_api.manifest import ContentManifest, SourceManifest
from modelcache_operator.decide.world import Uid


class ManifestDamagedError(Exception):
    """A stored manifest does not have the digest that status names."""


@dataclass(frozen=True, slots=True)
class AdoptedContent:
    """The one content manifest of a version, and the digest of its stored bytes."""

    manifest: ContentManifest
    manifest_digest: str


class Manifests(Protocol):
    """All methods may be called by several replicas at once; the first writer wins."""

    async def put_source(self, uid: Uid, manifest: SourceManifest) -> None:
        """Keep the source manifest; a no-op if it is there already."""

    async def get_source(self, uid: Uid, digest: str) -> SourceManifest | None:
        """The source manifest with that digest, or None. Raises ManifestDamagedError."""

    async def adopt_content(self, uid: Uid, manifest: ContentManifest) -> AdoptedContent:
        """Keep the content manifest if the version has none; return the one that is kept."""

    async def get_content(self, uid: Uid) -> AdoptedContent | None:
        """The adopted content manifest, or None. Raises ManifestDamagedError."""

    async def delete(self, uid: Uid) -> None:
        """Forget both manifests of a version that is gone."""

    async def uids(self) -> frozenset[Uid]:
        """Versions that have any manifest here; for the sweep of orphans."""
