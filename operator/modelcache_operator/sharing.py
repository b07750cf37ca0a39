"""Looks up what a node has of a version's files as part of other versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelcache_api.manifest import SourceFile
from modelcache_api.wire import MAX_SHARED, SharedBytes
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.shared_bytes import may_share, share_file
from modelcache_operator.decide.world import ModelVersionView, Uid
from modelcache_operator.ports.manifests import ManifestDamagedError, Manifests
from modelcache_operator.ports.world import WorldReader


async def find_shared(
    world: WorldReader,
    manifests: Manifests,
    caller: Caller,
    version: ModelVersionView,
    files: Sequence[SourceFile],
) -> Mapping[str, tuple[SharedBytes, ...]]:
    """By path, from adopted contents of versions that the caller's node is to hold as well."""
    node = world.cache_node(caller.node)
    found: dict[str, list[SharedBytes]] = {}
    for entry in () if node is None else node.spec.entries:
        other = world.model_version(Uid(entry.uid))
        if other is None or not may_share(version, other):
            continue
        try:
            source = await manifests.get_source(other.uid, entry.source_digest)
            content = await manifests.get_content(other.uid)
        except ManifestDamagedError:  # it is told where that version is asked for
            continue
        if source is None or content is None:
            continue
        theirs = {file.path: file for file in source.files}
        contents = {file.path: file for file in content.manifest.files}
        for file in files:
            if file.path in theirs and file.path in contents:
                shared = share_file(file, theirs[file.path], contents[file.path])
                if shared is not None:
                    found.setdefault(file.path, []).append(shared)
    return {path: tuple(shared[:MAX_SHARED]) for path, shared in found.items()}
