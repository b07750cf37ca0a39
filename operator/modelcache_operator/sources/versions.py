"""Which versions a bucket has of its objects: blocking."""

from __future__ import annotations

import logging
from typing import Final

from botocore.exceptions import ClientError

from modelcache_api.quoted import quote
from modelcache_operator.sources.client import S3Client
from modelcache_operator.sources.listing import Checkpoint, read_etag
from modelcache_operator.sources.refused import raise_if_general
from modelcache_operator.sources.selection import NO_VERSION
from modelcache_operator.sources.store_answer import StoreAnswer

_log = logging.getLogger(__name__)

# Old versions make this listing longer than the bucket seems; beyond it ETags must do.
_MAX_PAGES: Final = 50
# A suspended bucket keeps what it had; what came since has the id `null`.
_KEEPS_VERSIONS: Final = frozenset({"Enabled", "Suspended"})


def find_latest_versions(
    client: S3Client, bucket: str, prefix: str, checkpoint: Checkpoint
) -> dict[str, tuple[str, str]] | None:
    """(version id, etag) of the latest version by key; None where ETags must do.

    That is: the bucket keeps no versions, or its history is too long, or we may not see or read
    versions; reading one needs another permission than reading the object.
    """
    try:
        if client.get_bucket_versioning(Bucket=bucket).get("Status") not in _KEEPS_VERSIONS:
            return None
        latest = _list_latest(client, bucket, prefix, checkpoint)
        if latest is None:
            _tell(bucket, "there are too many of them")
            return None
        for key, (version_id, _) in latest.items():
            if version_id != NO_VERSION:
                client.head_object(Bucket=bucket, Key=key, VersionId=version_id)
                break
    except ClientError as error:
        raise_if_general(client, bucket, prefix, error)
        _tell(bucket, StoreAnswer.of(error.response).shown)
        return None
    return latest


def _tell(bucket: str, why: str) -> None:
    _log.info("versions of bucket %s are not used, ETags are: %s", quote(bucket), why)


def _list_latest(
    client: S3Client, bucket: str, prefix: str, checkpoint: Checkpoint
) -> dict[str, tuple[str, str]] | None:
    latest: dict[str, tuple[str, str]] = {}
    marker: dict[str, str] = {}
    for _ in range(_MAX_PAGES):
        checkpoint()
        page = client.list_object_versions(Bucket=bucket, Prefix=prefix, **marker)
        for row in page.get("Versions") or ():
            if row.get("IsLatest") and row.get("VersionId"):
                latest[row["Key"]] = (row["VersionId"], read_etag(row))
        if not page.get("IsTruncated"):
            return latest
        following = {
            "KeyMarker": page.get("NextKeyMarker") or "",
            "VersionIdMarker": page.get("NextVersionIdMarker") or "",
        }
        following = {name: value for name, value in following.items() if value}
        if not following or following == marker:
            return None
        marker = following
    return None
