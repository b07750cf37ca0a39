"""From a URI to a source manifest: blocking."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from modelcache_api.manifest import SourceFile, SourceManifest, make_source_manifest
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_api.v1alpha1.source import Checksums
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.checksums import ask_checksums
from modelcache_operator.sources.client import S3Client
from modelcache_operator.sources.listing import Checkpoint, find_object, list_objects
from modelcache_operator.sources.location import S3Location
from modelcache_operator.sources.selection import (
    Globs,
    ListedObject,
    drop_folder_markers,
    refuse_weak_identities,
    select_files,
    select_object,
    with_versions,
)
from modelcache_operator.sources.stated import choose_asked
from modelcache_operator.sources.versions import find_latest_versions


def listing_too_long() -> SourceError:
    """The error for a listing that was given up."""
    return SourceError(
        Reason.SOURCE_ERROR,
        "the listing takes too long: narrow source.uri",
        retry_after_seconds=60.0,
    )


class Gate:
    """Ends a listing between two pages, at its deadline or when nobody waits for it any more."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._closed = threading.Event()

    def close(self) -> None:
        """Let the next check fail."""
        self._closed.set()

    def check(self) -> None:
        """Raise SourceError if the listing should end."""
        if self._closed.is_set() or time.monotonic() > self._deadline:
            raise listing_too_long()


def resolve_location(
    client: S3Client,
    location: S3Location,
    globs: Globs,
    checkpoint: Checkpoint,
    checksums: Checksums,
) -> SourceManifest:
    """The selected files below the folder, or the object of that very key if there is no folder.

    Raises:
        SourceError: nothing is found or selected, or what is must not be taken.
    """
    prefix = location.folder_prefix
    objects = drop_folder_markers(list_objects(client, location.bucket, prefix, checkpoint))
    files = select_files(objects, prefix, globs)
    single = None
    if not objects and location.key:
        single = find_object(client, location.bucket, location.key)
        if single is not None:
            files = select_object(single, location.object_name, globs)
    if not files:
        raise _not_found(location, len(objects) + (single is not None))
    identified = _with_versions(client, location, files, checkpoint)
    refuse_weak_identities(identified)
    listed = objects if single is None else (single,)
    known = _with_checksums(client, location, identified, listed, checkpoint, checksums)
    return make_source_manifest(known)


def _with_versions(
    client: S3Client,
    location: S3Location,
    files: Sequence[SourceFile],
    checkpoint: Checkpoint,
) -> tuple[SourceFile, ...]:
    keys = [location.key_of(file) for file in files]
    prefix = location.key if files[0].key is not None else location.folder_prefix
    latest = find_latest_versions(client, location.bucket, prefix, checkpoint)
    return tuple(files) if latest is None else with_versions(files, keys, latest)


def _with_checksums(
    client: S3Client,
    location: S3Location,
    files: Sequence[SourceFile],
    listed: Sequence[ListedObject],
    checkpoint: Checkpoint,
    policy: Checksums,
) -> tuple[SourceFile, ...]:
    keys = {item.key for item in listed if item.has_checksum}
    stated = frozenset(file.path for file in files if location.key_of(file) in keys)
    asked = choose_asked(files, stated, policy)
    answered = ask_checksums(client, location, asked, checkpoint) if asked else {}
    return tuple(answered.get(file.path, file) for file in files)


def _not_found(location: S3Location, listed: int) -> SourceError:
    if listed:
        message = f"none of the {listed} objects at source.uri is taken by include and exclude"
    elif location.key:
        message = (
            f"bucket {quote(location.bucket)} has no object named {quote(location.key)} "
            "and none below it: correct source.uri, or upload the model"
        )
    else:
        message = f"bucket {quote(location.bucket)} is empty: upload the model"
    return SourceError(Reason.SOURCE_NOT_FOUND, message)
