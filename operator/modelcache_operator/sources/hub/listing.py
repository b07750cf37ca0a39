"""From a revision to a source manifest: blocking, complete or an error."""

from __future__ import annotations

from typing import Final

from modelcache_api.manifest import SourceFile, SourceManifest, make_source_manifest
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.hub.duplicates import find_duplicates
from modelcache_operator.sources.hub.library import HubLibrary, OddAnswerError
from modelcache_operator.sources.hub.location import HubLocation
from modelcache_operator.sources.selection import Globs, check_files

# Files looked at for one version, selected or not: bounds memory and time of one listing.
MAX_LISTED: Final = 100_000


def list_repository(
    library: HubLibrary, location: HubLocation, commit: str | None, globs: Globs
) -> SourceManifest:
    """The selected files of the commit; of the one that the revision is now, if none is given.

    A file's identity is its blob's name in git: that of large files covers the sha256 as well. They
    are listed under the repository's present name: a redirect might lose what was asked for.

    Raises:
        SourceError: nothing is selected, or what is must not be taken.
        OddAnswerError: these are not the answers of a hub.
    """
    name, found = library.find_commit(location.repository, commit or location.revision)
    if commit not in (None, found):
        raise OddAnswerError
    every = _list_all(library, name, found)
    selected = [file for file in every.values() if globs.select(file.path)]
    if globs.include is None:
        left_out = find_duplicates(file.path for file in selected)
        selected = [file for file in selected if file.path not in left_out]
    if not selected:
        raise _nothing(location, len(every))
    check_files(selected)
    return make_source_manifest(selected, found)


def _list_all(library: HubLibrary, name: str, commit: str) -> dict[str, SourceFile]:
    found: dict[str, SourceFile] = {}
    for file in library.list_files(name, commit):
        if file.path in found:
            raise OddAnswerError
        found[file.path] = SourceFile(
            file.path, file.size_bytes, version_id=file.blob_id, sha256=file.sha256
        )
        if len(found) > MAX_LISTED:
            raise SourceError(
                Reason.TOO_MANY_FILES, f"the repository has more than {MAX_LISTED} files"
            )
    return found


def _nothing(location: HubLocation, listed: int) -> SourceError:
    name = quote(location.repository)
    if listed:
        message = f"none of the {listed} files of {name} is taken by include and exclude"
    else:
        message = f"{name} has no files at {quote(location.revision)}: upload the model"
    return SourceError(Reason.SOURCE_NOT_FOUND, message)
