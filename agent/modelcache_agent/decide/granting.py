"""Whether what the operator grants is what the entry asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from modelcache_api.conditions import truncate
from modelcache_api.cut import describe_cut_fault
from modelcache_api.keys import describe_unsafe_path, find_file_and_folder_clash
from modelcache_api.manifest import ContentFile, SourceFile, SourceManifest
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import GrantedFile, WireError

# The least pause after "not known yet": a replica that lags catches up in moments, and the next
# request may reach another one.
UNKNOWN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class GrantRefusal:
    """Why the grant is not used."""

    reason: Reason
    message: str


def check_source(entry: EntrySpec, source: SourceManifest) -> GrantRefusal | None:
    """Why the granted files must not be fetched for the entry, or None."""
    if not source.files:
        return GrantRefusal(Reason.GRANT_REFUSED, "the operator granted no files")
    if source.digest != entry.source_digest:
        message = "the granted files do not have the sourceDigest of the entry"
        return GrantRefusal(Reason.SOURCE_CHANGED, message)
    for file in source.files:
        fault = _check_file(file)
        if fault is not None:
            return fault
    clash = find_file_and_folder_clash(file.path for file in source.files)
    if clash is not None:
        message = f"{clash!r} is a file and a folder of another file"
        return GrantRefusal(Reason.UNSAFE_KEY, truncate(message))
    if source.size_bytes > entry.size_bytes:
        message = (
            f"the granted files have {source.size_bytes} bytes, "
            f"the entry reserves {entry.size_bytes}"
        )
        return GrantRefusal(Reason.GRANT_REFUSED, message)
    return None


def _check_file(file: SourceFile) -> GrantRefusal | None:
    fault = describe_unsafe_path(file.path)
    if fault is not None:
        return GrantRefusal(Reason.UNSAFE_KEY, truncate(f"unsafe path {file.path!r}: {fault}"))
    fault = None if file.cut is None else describe_cut_fault(file.cut, file.size_bytes)
    if fault is not None:
        message = f"what is taken of {file.path!r} makes no sense: {fault}"
        return GrantRefusal(Reason.GRANT_REFUSED, truncate(message))
    return None


def make_contents(files: Iterable[GrantedFile]) -> Mapping[str, ContentFile]:
    """The contents that the operator knows, by path."""
    return {
        file.path: ContentFile(file.path, file.size_bytes, file.sha256, file.pieces)
        for file in files
        if file.sha256 is not None
    }


def describe_wire_error(error: WireError | None) -> tuple[Reason, str]:
    """The operator's refusal in our words; a reason of a newer operator is a refusal."""
    if error is None:
        return Reason.GRANT_REFUSED, "the operator refused without a reason"
    message = truncate(error.message) or "the operator refused"
    try:
        return Reason(error.reason), message
    except ValueError:
        return Reason.GRANT_REFUSED, message
