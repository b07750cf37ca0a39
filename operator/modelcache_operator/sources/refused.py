"""Whether a store refuses one kind of request, or us."""

from __future__ import annotations

from typing import Final

from botocore.exceptions import ClientError

from modelcache_operator.sources.client import S3Client
from modelcache_operator.sources.errors import CLOCK_SKEW, EXPIRED
from modelcache_operator.sources.store_answer import StoreAnswer

_BUSY: Final = frozenset({429, 500, 502, 503, 504})


def raise_if_general(client: S3Client, bucket: str, prefix: str, error: ClientError) -> None:
    """Return if only that request was refused; else raise what is wrong with every one.

    The prefix is one that could be listed before.
    A store without an operation, and keys without the permission, are no reason to fail: what the
    request would have told is done without. Expired keys, a wrong clock and a busy store are.
    """
    answer = StoreAnswer.of(error.response)
    if answer.status in _BUSY or answer.code in EXPIRED or answer.code == CLOCK_SKEW:
        raise error
    if not answer.code or answer.code.isdigit():
        # The answer to a HEAD has no words, that to a listing has.
        client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
