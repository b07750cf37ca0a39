"""Reads a part of an object: blocking, and only while it is the one that was listed."""

from __future__ import annotations

from http import HTTPStatus

from botocore.exceptions import ClientError

from modelcache_api.manifest import SourceFile
from modelcache_operator.sources.client import S3Client
from modelcache_operator.sources.location import S3Location
from modelcache_operator.sources.partial.answer import check_part, range_header
from modelcache_operator.sources.selection import changed_meanwhile
from modelcache_operator.sources.store_answer import StoreAnswer


def read_object_part(
    client: S3Client, location: S3Location, file: SourceFile, span: tuple[int, int]
) -> bytes:
    """Bytes [start, end) of the object.

    Raises:
        SourceError: it has changed since it was listed, or the store serves no parts.
        botocore errors: as they come.
    """
    more = {} if file.version_id is None else {"VersionId": file.version_id}
    if file.etag is not None:
        more["IfMatch"] = file.etag
    key = location.key_of(file)
    try:
        answer = client.get_object(
            Bucket=location.bucket, Key=key, Range=range_header(*span), **more
        )
    except ClientError as error:
        if StoreAnswer.of(error.response).status == HTTPStatus.PRECONDITION_FAILED:
            raise changed_meanwhile(key) from None
        raise
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    content_range = str(answer.get("ContentRange") or "")
    return check_part(file, span, status, content_range, answer["Body"].read())
