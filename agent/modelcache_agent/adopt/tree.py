"""Which files of a tree are taken in, under which paths. Reads names and links, never content.

AdoptError    one sentence that names the file and the cure
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from modelcache_api.keys import describe_unsafe_path
from modelcache_api.limits import MAX_FILES


class AdoptError(Exception):
    """Nothing was taken in."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A regular file; `location` is where its bytes are, behind any link."""

    path: str
    location: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder, and how far its links may lead."""

    root: Path
    fence: Path


def find_tree(path: Path) -> Tree:
    """The tree below this path: itself, or the snapshot of a Hugging Face cache's repository.

    Raises:
        AdoptError: there is no such folder, or it holds several snapshots.
    """
    try:
        root = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise AdoptError(f"--path {path} cannot be read: {describe(error)}") from None
    if not root.is_dir():
        raise AdoptError(f"--path {path} is no folder: give the folder that holds the model")
    if _is_hub_repository(root):
        return Tree(_choose_snapshot(root), root)
    repository = root.parent.parent
    if root.parent.name == "snapshots" and _is_hub_repository(repository):
        return Tree(root, repository)
    return Tree(root, root)


def list_files(tree: Tree) -> list[TreeFile]:
    """All files of the tree, in the order of their paths.

    Folders whose names begin with a dot hold other programs' books (.git, .cache) and are left out.

    Raises:
        AdoptError: a link is broken or leads out, something is no regular file, a name cannot be
            kept, or there are too many files.
    """
    found = []
    for location in _walk(tree.root):
        path = str(location.relative_to(tree.root))
        fault = describe_unsafe_path(path)
        if fault is not None:
            raise AdoptError(f"{path!a} cannot be taken in: {fault}")
        found.append(_look_at(path, location, tree))
        if len(found) > MAX_FILES:
            raise AdoptError(f"{tree.root} holds more than {MAX_FILES} files: give the model alone")
    if not found:
        raise AdoptError(f"{tree.root} holds no files")
    return sorted(found, key=lambda file: file.path.encode())


def describe(error: Exception) -> str:
    """The cause in a few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root, onerror=_refuse_folder):
        base = Path(folder)
        for name in folders:
            if (base / name).is_symlink():
                path = (base / name).relative_to(root)
                raise AdoptError(
                    f"{str(path)!a} is a link to a folder: only links to files are followed"
                )
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (base / name for name in files)


def _refuse_folder(error: OSError) -> NoReturn:
    raise AdoptError(f"{str(error.filename)!a} cannot be read: {describe(error)}")


def _look_at(path: str, location: Path, tree: Tree) -> TreeFile:
    try:
        target = location.resolve(strict=True)
        found = target.stat()
    except FileNotFoundError:
        raise AdoptError(f"{path!a} is a link to nothing: repair or remove it") from None
    except (OSError, RuntimeError) as error:
        raise AdoptError(f"{path!a} cannot be read: {describe(error)}") from None
    if not target.is_relative_to(tree.fence):
        raise AdoptError(
            f"{path!a} is a link that leads out of {tree.fence}: put the file itself there"
        )
    if not stat.S_ISREG(found.st_mode):
        raise AdoptError(f"{path!a} is no regular file: remove it")
    return TreeFile(path, target, found.st_size)


def _is_hub_repository(path: Path) -> bool:
    return (path / "snapshots").is_dir() and (path / "blobs").is_dir()


def _choose_snapshot(repository: Path) -> Path:
    snapshots = sorted(path for path in (repository / "snapshots").iterdir() if path.is_dir())
    if len(snapshots) == 1 and not snapshots[0].is_symlink():
        return snapshots[0]
    names = ", ".join(path.name[:12] for path in snapshots[:5]) or "none"
    raise AdoptError(
        f"{repository} holds {len(snapshots)} snapshots ({names}): give one of them with --path"
    )
