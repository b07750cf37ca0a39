"""ports.manifests over immutable ConfigMaps in the operator's namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from modelcache_api import names
from modelcache_api.manifest import (
    ContentManifest,
    SourceManifest,
    digest_of_bytes,
    unpack_content,
    unpack_source,
)
from modelcache_kube.client import KubeClient
from modelcache_kube.errors import AlreadyExists
from modelcache_kube.resources import CONFIG_MAPS
from modelcache_operator.adapters.manifest_cache import WeighedCache
from modelcache_operator.adapters.manifest_objects import (
    Head,
    Kind,
    PackedManifest,
    build_head,
    build_parts,
    content_head_name,
    kind_of,
    pack_manifest,
    parse_head,
    parse_part,
    part_names,
    source_head_name,
    uid_of,
)
from modelcache_operator.decide.world import Uid
from modelcache_operator.ports.manifests import AdoptedContent, ManifestDamagedError

_T = TypeVar("_T")
# Files, ranges and pieces kept in memory, about 150 bytes each.
CACHE_ROWS: Final = 200_000
_ROW_BYTES: Final = 150
# Far above any real manifest: keeps a tampered head from making us read for ever.
_MAX_PARTS: Final = 1_000


class ConfigMapManifests:
    """Any replica may write at any time; what two writers want to differ in, one create decides.

    Errors of the API server pass through. A write that dies half-way leaves parts without a head;
    the next attempt takes them up, `delete` removes them.
    """

    def __init__(self, client: KubeClient, namespace: str, *, cache_rows: int = CACHE_ROWS) -> None:
        self._client = client
        self._namespace = namespace
        self._sources: WeighedCache[SourceManifest] = WeighedCache(cache_rows)
        self._contents: WeighedCache[AdoptedContent] = WeighedCache(cache_rows)

    async def put_source(self, uid: Uid, manifest: SourceManifest) -> None:
        """Keep the source manifest; a no-op if it is there already. Missing parts are restored."""
        key = (uid, manifest.digest)
        if self._sources.get(key) is not None:
            return
        packed = await asyncio.to_thread(pack_manifest, uid, manifest)
        await self._create_all(packed)
        self._sources.put(key, manifest, _weigh(manifest))

    async def get_source(self, uid: Uid, digest: str) -> SourceManifest | None:
        """The source manifest with that digest, or None. Raises ManifestDamagedError."""
        cached = self._sources.get((uid, digest))
        if cached is not None:
            return cached
        head = await self._read_head(source_head_name(uid, digest))
        if head is None:
            return None
        manifest = await self._read(uid, head, unpack_source)
        if manifest.digest != digest:
            raise ManifestDamagedError(f"the stored source manifest of {uid} is not {digest}")
        self._sources.put((uid, digest), manifest, _weigh(manifest))
        return manifest

    async def adopt_content(self, uid: Uid, manifest: ContentManifest) -> AdoptedContent:
        """Keep the content manifest if the version has none; return the one that is kept."""
        packed = await asyncio.to_thread(pack_manifest, uid, manifest)
        head = await self._read_head(content_head_name(uid))
        is_open = head is None or head.stored_digest == packed.stored_digest
        if is_open and await self._create_all(packed):
            return self._keep(uid, AdoptedContent(manifest, packed.stored_digest))
        adopted = await self.get_content(uid)
        if adopted is None:
            raise ManifestDamagedError(f"the content manifest of {uid} vanished while it was read")
        if is_open and adopted.manifest_digest != packed.stored_digest:
            for part in build_parts(packed, self._namespace):
                await self._client.delete(CONFIG_MAPS, part["metadata"]["name"], self._namespace)
        return adopted

    async def get_content(self, uid: Uid) -> AdoptedContent | None:
        """The adopted content manifest, or None. Raises ManifestDamagedError.

        Once adopted it never changes, so a cached one needs no look at the API server.
        """
        cached = self._contents.get(uid)
        if cached is not None:
            return cached
        head = await self._read_head(content_head_name(uid))
        if head is None:
            return None
        manifest = await self._read(uid, head, unpack_content)
        if manifest.digest != head.digest:
            raise ManifestDamagedError(f"the stored content manifest of {uid} is not {head.digest}")
        return self._keep(uid, AdoptedContent(manifest, head.stored_digest))

    async def delete(self, uid: Uid) -> None:
        """Forget both manifests of a version that is gone; heads first, so none is incomplete."""
        self._contents.drop(uid)
        selector = f"{names.LABEL_MANIFEST_OF}={uid}"
        found = await self._client.list(CONFIG_MAPS, self._namespace, label_selector=selector)
        for item in sorted(found.items, key=lambda item: kind_of(item) == Kind.PART):
            await self._client.delete(CONFIG_MAPS, item["metadata"]["name"], self._namespace)

    async def uids(self) -> frozenset[Uid]:
        """Versions that have a manifest here. Reads the small heads only."""
        selector = f"{names.LABEL_MANIFEST_KIND} in ({Kind.SOURCE},{Kind.CONTENT})"
        found = await self._client.list(CONFIG_MAPS, self._namespace, label_selector=selector)
        return frozenset(uid for item in found.items if (uid := uid_of(item)))

    def _keep(self, uid: Uid, adopted: AdoptedContent) -> AdoptedContent:
        rows = sum(1 + len(file.pieces) for file in adopted.manifest.files)
        self._contents.put(uid, adopted, rows)
        return adopted

    async def _create_all(self, packed: PackedManifest) -> bool:
        """Create what is missing, the head last; False if the head was there already."""
        parts = build_parts(packed, self._namespace)
        for part in parts:
            await self._create(part)
        return await self._create(build_head(packed, self._namespace, len(parts)))

    async def _create(self, config_map: dict[str, object]) -> bool:
        try:
            await self._client.create(CONFIG_MAPS, config_map, field_manager=names.MANAGER_OPERATOR)
        except AlreadyExists:
            return False
        return True

    async def _read_head(self, name: str) -> Head | None:
        found = await self._client.get(CONFIG_MAPS, name, self._namespace)
        if found is None:
            return None
        try:
            head = parse_head(found)
        except ValueError as error:
            raise ManifestDamagedError(f"ConfigMap {name} is damaged") from error
        if not 0 < head.parts <= _MAX_PARTS:
            raise ManifestDamagedError(f"ConfigMap {name} names {head.parts} parts")
        return head

    async def _read(self, uid: Uid, head: Head, unpack: Callable[[bytes], _T]) -> _T:
        data = bytearray()
        for name in part_names(uid, head.stored_digest, head.parts):
            part = await self._client.get(CONFIG_MAPS, name, self._namespace)
            if part is None:
                raise ManifestDamagedError(f"ConfigMap {name} is missing")
            data += parse_part(part)
        return await asyncio.to_thread(_verify_and_unpack, bytes(data), head, unpack)


def _verify_and_unpack(data: bytes, head: Head, unpack: Callable[[bytes], _T]) -> _T:
    if digest_of_bytes(data) != head.stored_digest:
        raise ManifestDamagedError(f"the stored bytes do not have the digest {head.stored_digest}")
    try:
        return unpack(data)
    except (ValueError, TypeError) as error:
        raise ManifestDamagedError("the stored bytes are no manifest") from error


def _weigh(manifest: SourceManifest) -> int:
    cuts = [file.cut for file in manifest.files if file.cut is not None]
    literals = sum(len(cut.literal) for cut in cuts) // _ROW_BYTES
    return len(manifest.files) + literals + sum(len(cut.ranges) for cut in cuts)
