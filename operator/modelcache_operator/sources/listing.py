"""What a bucket holds: blocking, page by page, and complete or an error.

A page that fails fails the whole listing, so that what it would have named is never taken for gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from modelcache_api.names import Reason
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.client import S3Client
from modelcache_operator.sources.selection import ListedObject
from modelcache_operator.sources.stated import lists_checksum

# Keys looked at for one version, selected or not: bounds memory and time of one listing.
MAX_LISTED: Final = 200_000
# A page may be empty and yet say that more follow; a store that says so for ever is broken.
_MAX_EMPTY_PAGES: Final = 100
_RETRY_SECONDS: Final = 30.0

# Raises when the listing is no longer wanted.
Checkpoint = Callable[[], None]


def list_objects(
    client: S3Client, bucket: str, prefix: str, checkpoint: Checkpoint
) -> tuple[ListedObject, ...]:
    """All objects whose key starts with the prefix, in the order of their keys.

    Raises:
        SourceError: the answers make no complete listing, or a longer one than we take.
        botocore errors: as they come.
    """
    found: dict[str, ListedObject] = {}
    for page in _pages(client, bucket, prefix, checkpoint):
        for row in page.get("Contents") or ():
            item = _read_row(row, prefix)
            if item.key in found:
                raise _broken(f"the listing of bucket {bucket!r} names a key twice")
            found[item.key] = item
        if len(found) > MAX_LISTED:
            raise SourceError(
                Reason.TOO_MANY_FILES,
                f"more than {MAX_LISTED} objects lie below source.uri: narrow it",
            )
    return tuple(found[key] for key in sorted(found, key=lambda key: key.encode()))


def find_object(client: S3Client, bucket: str, key: str) -> ListedObject | None:
    """The object with exactly that key, by a listing: it needs no other permission."""
    page = client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
    _check_page(page, bucket)
    rows = [row for row in page.get("Contents") or () if row.get("Key") == key]
    return _read_row(rows[0], key) if rows else None


def _pages(
    client: S3Client, bucket: str, prefix: str, checkpoint: Checkpoint
) -> Iterator[Mapping[str, Any]]:
    seen: set[str] = set()
    more: dict[str, str] = {}
    empty = 0
    while True:
        checkpoint()
        page: Mapping[str, Any] = client.list_objects_v2(Bucket=bucket, Prefix=prefix, **more)
        _check_page(page, bucket)
        yield page
        token = page.get("NextContinuationToken")
        if not page.get("IsTruncated", token is not None):
            return
        empty = 0 if page.get("Contents") else empty + 1
        if not token or token in seen or empty > _MAX_EMPTY_PAGES:
            raise _broken(f"the listing of bucket {bucket!r} says that more follows, and not where")
        seen.add(token)
        more = {"ContinuationToken": token}


def _check_page(page: Mapping[str, Any], bucket: str) -> None:
    """An answer about something else looks like an empty bucket, once it is parsed."""
    if page.get("Name") != bucket:
        raise SourceError(
            Reason.WRONG_ADDRESSING,
            f"the answer is not a listing of bucket {bucket!r}: source.endpoint is no S3 store, "
            "or set source.addressing to the style that it takes",
            retry_after_seconds=_RETRY_SECONDS,
        )


def _read_row(row: Mapping[str, Any], prefix: str) -> ListedObject:
    key, size = row.get("Key"), row.get("Size")
    if not isinstance(key, str) or not isinstance(size, int) or size < 0:
        raise _broken("the listing names an object without key or size")
    if not key.startswith(prefix):
        raise _broken("the listing names a key outside of the prefix that was asked for")
    return ListedObject(key, size, read_etag(row), lists_checksum(row))


def read_etag(row: Mapping[str, Any]) -> str:
    """The ETag in quotes, as in an HTTP header, so that If-Match takes it; some lists drop them."""
    etag = row.get("ETag")
    bare = etag.strip() if isinstance(etag, str) else ""
    is_quoted = bare.endswith('"') and bare.startswith(('"', 'W/"'))
    inner = bare[bare.index('"') + 1 : -1] if is_quoted and bare.count('"') > 1 else bare
    if not inner or '"' in inner or not inner.isascii() or not inner.isprintable():
        raise _broken("the listing gives no usable ETag, so a changed object would go unnoticed")
    return bare if is_quoted else f'"{bare}"'


def _broken(message: str) -> SourceError:
    return SourceError(Reason.SOURCE_ERROR, message, retry_after_seconds=_RETRY_SECONDS)
