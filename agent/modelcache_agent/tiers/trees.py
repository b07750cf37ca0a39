"""versions/<digest>/: complete trees of hard links, published by one rename."""

from __future__ import annotations

from pathlib import Path

from modelcache_agent.tiers.blobs import BlobFolder, looks_as_recorded
from modelcache_agent.tiers.durable import remove_anything, sync_directory, walk_files
from modelcache_agent.tiers.layout import DIRECTORY_MODE
from modelcache_agent.tiers.records import FileRecord


def build_tree(
    root: Path, files: tuple[FileRecord, ...], blobs: BlobFolder
) -> tuple[FileRecord, ...]:
    """A new, fsynced tree below `root`, replacing what a crash left there.

    Returns the records with the blobs that were linked in the end.
    """
    remove_anything(root)
    root.mkdir(mode=DIRECTORY_MODE)
    linked = []
    for record in files:
        target = root / record.content.path
        _make_parents(root, target)
        linked.append(blobs.link(record, target))
    for folder in _folders(root):
        sync_directory(folder)
    sync_directory(blobs.folder)
    return tuple(linked)


def _make_parents(root: Path, target: Path) -> None:
    """Never the root itself, which may have been taken away on purpose meanwhile."""
    for parent in reversed(target.relative_to(root).parents[:-1]):
        (root / parent).mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def describe_tree_fault(root: Path, files: tuple[FileRecord, ...]) -> str | None:
    """Why the tree is not the published one, judged by names and inodes alone, or None."""
    if not root.is_dir() or root.is_symlink():
        return "the tree is missing"
    for record in files:
        if not looks_as_recorded(root / record.content.path, record):
            return f"{record.content.path!r} is missing or not the file that was published"
    expected = {root / record.content.path for record in files}
    for path in walk_files(root):
        if path not in expected:
            return f"{str(path.relative_to(root))!r} does not belong to it"
    return None


def _folders(root: Path) -> list[Path]:
    """All folders, deepest first."""
    folders = [path for path in root.rglob("*") if path.is_dir() and not path.is_symlink()]
    return [*sorted(folders, key=lambda path: -len(path.parts)), root]
