"""What an `s3://` URI names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from modelcache_api.manifest import SourceFile
from modelcache_api.names import Scheme

# To an S3 store these are keys like others, to a proxy or a reader of the allow-list they are not.
_AMBIGUOUS: Final = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class S3Location:
    """A bucket and what is asked of it. `key` has no slash at its end; empty is the whole bucket.

    The key may name a folder or one object; only the listing knows.
    """

    bucket: str
    key: str

    @property
    def folder_prefix(self) -> str:
        """Prefix of the keys in the folder; ends with a slash, so that siblings do not match."""
        return f"{self.key}/" if self.key else ""

    @property
    def object_name(self) -> str:
        """Path of the file if the key names one object."""
        return self.key.rpartition("/")[2]

    def key_of(self, file: SourceFile) -> str:
        """The key that holds the file."""
        return file.key if file.key is not None else f"{self.folder_prefix}{file.path}"


def parse_s3_uri(uri: str) -> S3Location:
    """Bucket and key; with and without slash at the end are the same.

    Raises:
        ValueError: it is not such a URI.
    """
    bucket, _, key = uri.removeprefix(Scheme.S3.prefix).partition("/")
    if not uri.startswith(Scheme.S3.prefix) or not bucket:
        raise ValueError(f"not an s3:// URI: {uri[:200]!r}")
    key = key.removesuffix("/")
    if key and not _AMBIGUOUS.isdisjoint(key.split("/")):
        raise ValueError(f"source.uri must have no empty, . or .. part: {uri[:200]!r}")
    return S3Location(bucket, key)
