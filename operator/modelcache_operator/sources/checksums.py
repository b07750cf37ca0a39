"""Asks an S3 store for the checksums of objects: blocking, one HEAD each, bounded.

The values are in no listing. A signed GET would bring them only where it asks for a whole object,
and stores that do not know the header refuse it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from botocore.exceptions import ClientError

from modelcache_api.manifest import SourceFile
from modelcache_api.quoted import quote
from modelcache_operator.sources.client import S3Client
from modelcache_operator.sources.listing import Checkpoint
from modelcache_operator.sources.location import S3Location
from modelcache_operator.sources.refused import raise_if_general
from modelcache_operator.sources.selection import changed_meanwhile
from modelcache_operator.sources.stated import is_same_object, with_stated
from modelcache_operator.sources.store_answer import StoreAnswer

_log = logging.getLogger(__name__)

# Below the ten connections that the client keeps.
_AT_ONCE: Final = 6
# What is not told by then is not waited for: the files can be fetched without it.
_ASK_SECONDS: Final = 60.0
_NOT_FOUND: Final = 404


@dataclass(slots=True)
class _Asking:
    client: S3Client
    location: S3Location
    checkpoint: Checkpoint
    deadline: float
    refused: list[StoreAnswer] = field(default_factory=list)

    def ask(self, file: SourceFile) -> SourceFile:
        self.checkpoint()
        if self.refused or time.monotonic() > self.deadline:
            return file
        key = self.location.key_of(file)
        version = {} if file.version_id is None else {"VersionId": file.version_id}
        try:
            answer = self.client.head_object(
                Bucket=self.location.bucket, Key=key, ChecksumMode="ENABLED", **version
            )
        except ClientError as error:
            refusal = StoreAnswer.of(error.response)
            if refusal.status == _NOT_FOUND:
                raise changed_meanwhile(key) from None
            listed = key if file.key is not None else self.location.folder_prefix
            raise_if_general(self.client, self.location.bucket, listed, error)
            self.refused.append(refusal)
            return file
        if not is_same_object(file, answer):
            raise changed_meanwhile(key)
        return with_stated(file, answer)


def ask_checksums(
    client: S3Client,
    location: S3Location,
    files: Sequence[SourceFile],
    checkpoint: Checkpoint,
) -> dict[str, SourceFile]:
    """The files by path, each with what the store states of it.

    A store that refuses to tell is not asked on, and the files are taken without checksums.

    Raises:
        SourceError: an object has changed since it was listed.
        botocore errors: as they come, where the store refuses more than this.
    """
    asking = _Asking(client, location, checkpoint, time.monotonic() + _ASK_SECONDS)
    first = [asking.ask(file) for file in files[:1]]  # alone: it may be the only one
    with ThreadPoolExecutor(_AT_ONCE, "s3-checksums") as pool:
        answered = [*first, *pool.map(asking.ask, files[1:])]
    told = sum(file.sha256 is not None or file.checksum is not None for file in answered)
    if told < len(files):
        why = f": {asking.refused[0].shown}" if asking.refused else ""
        bucket = quote(location.bucket)
        _log.info(
            "bucket %s: %d of %d checksums asked for are told%s", bucket, told, len(files), why
        )
    return {file.path: file for file in answered}
