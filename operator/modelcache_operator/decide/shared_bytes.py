"""Which bytes of a file a node may have already, as part of another version of the same source."""

from __future__ import annotations

from modelcache_api.manifest import ContentFile, SourceFile
from modelcache_api.v1alpha1.source import Source
from modelcache_api.wire import SharedBytes
from modelcache_operator.decide.world import ModelVersionView


def may_share(version: ModelVersionView, other: ModelVersionView) -> bool:
    """True if equal identities of files mean equal bytes in both, and one takes only a part.

    Two versions that take all have equal contents, or the same files in them: those are known by
    their sha256. Another namespace's credentials, or another server, vouch for nothing here.
    """
    takes_part = version.spec.load is not None or other.spec.load is not None
    is_other = version.uid != other.uid and version.key.namespace == other.key.namespace
    return takes_part and is_other and _place(version.spec.source) == _place(other.spec.source)


def _place(source: Source) -> tuple[str | None, ...]:
    return source.uri, source.endpoint, source.region


def share_file(file: SourceFile, other: SourceFile, content: ContentFile) -> SharedBytes | None:
    """What the other version's file, of this content, has of the file; None if nothing.

    A date is no proof that bytes are equal: within its second a file may have changed twice.
    """
    whole = other.whole
    is_same = (file.path, file.whole.identity) == (whole.path, whole.identity)
    has_name = whole.version_id is not None or whole.etag is not None
    if not is_same or not has_name or file.whole.size_bytes != whole.size_bytes:
        return None
    skip = 0 if other.cut is None else len(other.cut.literal)
    ranges = ((0, whole.size_bytes),) if other.cut is None else other.cut.ranges
    if not ranges or not whole.size_bytes:
        return None
    return SharedBytes(
        sha256=content.sha256, size_bytes=content.size_bytes, skip=skip, ranges=ranges
    )
