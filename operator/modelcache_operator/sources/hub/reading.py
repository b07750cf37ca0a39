"""Where and how single files of a commit are read."""

from __future__ import annotations

from modelcache_api.manifest import SourceFile, SourceManifest
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.hub.addresses import FileAddress, check_target, expiry_of
from modelcache_operator.sources.hub.library import HubLibrary
from modelcache_operator.sources.hub.small_files import check_body, is_small, refuse_large
from modelcache_operator.sources.hub.target import HubTarget
from modelcache_operator.sources.origin import origin_of


def settle_address(
    library: HubLibrary, target: HubTarget, commit: str, file: SourceFile, expires_at: float
) -> FileAddress | None:
    """The file's address as far as it can be told without asking the hub, else None. Pure.

    The hub serves what lies in git itself: to anybody at the commit's own address, or to the token.
    """
    if file.sha256 is not None:
        return None
    if target.access.credentials is None:
        url = library.address(target.location.repository, commit, file.path)
        return FileAddress(url, expires_at)
    return FileAddress(None, expires_at) if is_small(file) else None


def ask_address(
    library: HubLibrary, target: HubTarget, commit: str, file: SourceFile, expires_at: float
) -> FileAddress:
    """The file's address, as the hub says it to whoever holds the token. Blocking.

    Raises:
        SourceError: no agent can read the file there.
        HUB_ERRORS: as they come.
    """
    found = library.locate(target.location.repository, commit, file.path)
    if found.commit not in (None, commit) or found.size_bytes not in (None, file.size_bytes):
        raise SourceError(
            Reason.SOURCE_CHANGED,
            f"{target.endpoint.origin.authority} offers another {quote(file.path)} than the "
            "commit's: a mirror that answers for other commits than it is asked for is of no use",
            retry_after_seconds=60.0,
        )
    if origin_of(found.url) != target.endpoint.origin:
        check_target(target.endpoint, found.url, target.reach_of)
        return FileAddress(found.url, expiry_of(found.url, expires_at))
    if target.access.credentials is None:
        url = library.address(target.location.repository, commit, file.path)
        return FileAddress(url, expires_at)
    if not is_small(file):
        raise refuse_large(file, target.endpoint.origin.authority)
    return FileAddress(None, expires_at)


def try_one(library: HubLibrary, target: HubTarget, manifest: SourceManifest) -> None:
    """Find out now whether files may be read: a gate shows the list to everybody. Blocking.

    Raises:
        SourceError, HUB_ERRORS: as `ask_address`.
    """
    commit = str(manifest.revision)
    stated = [file for file in manifest.files if file.sha256 is not None]
    others = [file for file in manifest.files if file.sha256 is None]
    largest = [max(files, key=lambda file: file.size_bytes) for files in (stated, others) if files]
    for file in largest[:1] + [file for file in largest[1:] if not is_small(file)]:
        ask_address(library, target, commit, file, 0.0)


def read_small(library: HubLibrary, target: HubTarget, commit: str, file: SourceFile) -> bytes:
    """The bytes of a file that the operator hands over, checked. Blocking.

    Raises:
        SourceError: they are others, or the file is none that is handed over.
        HUB_ERRORS: as they come.
    """
    if target.access.credentials is None or not is_small(file):
        raise SourceError(Reason.SOURCE_INVALID, f"{quote(file.path)} is read at its own address")
    body = library.read(target.location.repository, commit, file.path)
    check_body(file, body)
    return body
