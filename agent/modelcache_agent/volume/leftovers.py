"""Bytes that were given up while pods showed them: they leave the disk with the last volume."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from modelcache_agent.decide.volumes import Volume
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.durable import walk_files
from modelcache_agent.volume.folders import VolumeFolder
from modelcache_api.manifest import ContentDigest


def measure_leftovers(store: DiskStore, volumes: Iterable[Volume]) -> int:
    """Bytes that only volumes hold. Trees are read only where a content was given up by force.

    That happens when bytes turn out to be damaged; what a pod shows is never evicted.
    """
    sizes: dict[int, int] = {}
    for volume in volumes:
        for digest, tree in _list_trees(VolumeFolder(store.layout.pods / volume.key), volume):
            if _shows_other_files(store, tree, digest):
                sizes |= _sizes_by_inode(tree)
    if not sizes:
        return 0
    counted = _sizes_by_inode(store.layout.blobs) | _sizes_by_inode(store.layout.quarantine)
    return sum(size for inode, size in sizes.items() if inode not in counted)


def _list_trees(
    folder: VolumeFolder, volume: Volume
) -> Iterator[tuple[ContentDigest | None, Path]]:
    if volume.is_filled:
        yield volume.bound_digest, folder.model
    for one in volume.beside:
        yield one.digest, folder.version(one.name)


def _shows_other_files(store: DiskStore, tree: Path, digest: ContentDigest | None) -> bool:
    """True if the content is not held, or was fetched anew; its largest file tells."""
    stored = None if digest is None else store.catalog.get(digest)
    if stored is None or not stored.files:
        return True
    largest = max(stored.files, key=lambda file: file.content.size_bytes)
    try:
        return (tree / largest.content.path).lstat().st_ino != largest.inode
    except OSError:
        return False


def _sizes_by_inode(root: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    for path in walk_files(root):
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            found[status.st_ino] = status.st_size
    return found
