"""From a listing to the files of a version: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from modelcache_api.keys import describe_unsafe_path, find_file_and_folder_clash, is_selected
from modelcache_api.limits import MAX_FILES
from modelcache_api.manifest import SourceFile
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError

_HADOOP_MARKER: Final = "_$folder$"
# The id of what was written while no versions were kept.
NO_VERSION: Final = "null"


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One object as a listing names it. `etag` is as it stands in an HTTP header.

    `has_checksum`: the listing says that the store knows one of the whole object.
    """

    key: str
    size_bytes: int
    etag: str
    has_checksum: bool = False


@dataclass(frozen=True, slots=True)
class Globs:
    """Which paths are taken."""

    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None

    def select(self, path: str) -> bool:
        """True if the path is taken."""
        return is_selected(path, self.include, self.exclude)


def drop_folder_markers(objects: Iterable[ListedObject]) -> tuple[ListedObject, ...]:
    """The objects without those that only stand for a folder.

    These are empty objects whose key ends with a slash or `_$folder$`, or that have objects below
    them: as files they could not exist beside their folder.
    """
    kept = tuple(item for item in objects if not _is_named_as_marker(item))
    empty = {item.key for item in kept if item.size_bytes == 0}
    folders = {folder for item in kept for folder in _folders_of(item.key) if folder in empty}
    return tuple(item for item in kept if item.key not in folders)


def select_files(
    objects: Sequence[ListedObject], prefix: str, globs: Globs
) -> tuple[SourceFile, ...]:
    """The files below the prefix that the globs take, path = key without the prefix.

    Raises:
        SourceError: UnsafeKey or TooManyFiles.
    """
    files = tuple(
        SourceFile(path, item.size_bytes, item.etag)
        for item in objects
        if globs.select(path := item.key[len(prefix) :])
    )
    check_files(files)
    return files


def check_files(files: Sequence[SourceFile]) -> None:
    """All that is selected may become files beside one another.

    Raises:
        SourceError: UnsafeKey or TooManyFiles.
    """
    _check_number(len(files))
    for file in files:
        _check_path(file.path)
    clash = find_file_and_folder_clash(file.path for file in files)
    if clash is not None:
        raise SourceError(
            Reason.UNSAFE_KEY,
            f"{quote(clash)} is both a file and a folder: rename one of them "
            "or leave one out with spec.exclude",
        )


def select_object(item: ListedObject, name: str, globs: Globs) -> tuple[SourceFile, ...]:
    """The one file of a URI that names an object, or nothing if the globs leave it out."""
    if not globs.select(name):
        return ()
    _check_path(name)
    return (SourceFile(name, item.size_bytes, item.etag, key=item.key),)


def with_versions(
    files: Sequence[SourceFile], keys: Sequence[str], latest: dict[str, tuple[str, str]]
) -> tuple[SourceFile, ...]:
    """The files with version ids. `latest` holds (version id, etag) by key.

    The id `null` is no identity: the store overwrites that version in place. Its ETag in a list of
    versions is another one, with some stores, than in all their other answers.

    Raises:
        SourceError: the bucket changed between the two listings.
    """
    versioned = []
    for file, key in zip(files, keys, strict=True):
        version_id, etag = latest.get(key, (None, None))
        if version_id == NO_VERSION:
            versioned.append(file)
            continue
        if etag != file.etag:
            raise changed_meanwhile(key)
        versioned.append(replace(file, version_id=version_id))
    return tuple(versioned)


def changed_meanwhile(key: str) -> SourceError:
    """The error for an object that is another one than a moment ago."""
    return SourceError(
        Reason.SOURCE_CHANGED,
        f"{quote(key)} changed while it was being listed; it is listed again",
        retry_after_seconds=10.0,
    )


def refuse_weak_identities(files: Iterable[SourceFile]) -> None:
    """No file may be told from a changed one by a weak ETag alone: If-Match never takes one.

    Raises:
        SourceError: one has nothing better.
    """
    weak = next(
        (f for f in files if f.version_id is None and (f.etag or "").startswith("W/")), None
    )
    if weak is not None:
        raise SourceError(
            Reason.SOURCE_INVALID,
            f"the store gives {quote(weak.path)} a weak ETag and no version id, so a change "
            "during a download would go unnoticed: enable versioning of the bucket, or read from "
            "the store without the proxy that weakens its ETags",
        )


def _folders_of(key: str) -> Iterator[str]:
    index = key.find("/")
    while index >= 0:
        yield key[:index]
        index = key.find("/", index + 1)


def _is_named_as_marker(item: ListedObject) -> bool:
    return item.size_bytes == 0 and item.key.endswith(("/", _HADOOP_MARKER))


def _check_number(number: int) -> None:
    if number > MAX_FILES:
        raise SourceError(
            Reason.TOO_MANY_FILES,
            f"{number} files are selected, at most {MAX_FILES} are taken: "
            "narrow source.uri, include or exclude in a new ModelVersion",
        )


def _check_path(path: str) -> None:
    why = describe_unsafe_path(path)
    if why is not None:
        raise SourceError(
            Reason.UNSAFE_KEY,
            f"the key {quote(path)} cannot become a file: {why}; "
            "rename it or leave it out with spec.exclude",
        )
