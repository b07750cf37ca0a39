"""The files themselves, by the digest of their bytes. A published inode is never written to."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from modelcache_agent.tiers.durable import temporary_for
from modelcache_agent.tiers.errors import BlobMissingError, StoreError
from modelcache_agent.tiers.layout import PARTIAL_MODE, PUBLISHED_MODE
from modelcache_agent.tiers.quarantine import Quarantine
from modelcache_agent.tiers.records import FileRecord
from modelcache_api.manifest import ContentFile

_CHUNK_BYTES: Final = 4 * 1024 * 1024


def hash_file(path: Path, should_stop: Callable[[], bool] = lambda: False) -> str | None:
    """The sha256 (hex) of a regular file's bytes, read past the page cache's memory; None: stopped.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        offset = 0
        while count := os.preadv(fd, [buffer], offset):
            if should_stop():
                return None
            digest.update(buffer[:count])
            os.posix_fadvise(fd, offset, count, os.POSIX_FADV_DONTNEED)
            offset += count
    finally:
        os.close(fd)
    return digest.hexdigest()


def looks_as_recorded(path: Path, record: FileRecord) -> bool:
    """The cheap check: the same inode, size and modification time, and a regular file."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_ino == record.inode
        and found.st_size == record.content.size_bytes
        and found.st_mtime_ns == record.mtime_ns
    )


def make_file_record(content: ContentFile, path: Path) -> FileRecord:
    """What is remembered of a blob that was just verified."""
    found = path.lstat()
    return FileRecord(content, path.name, found.st_ino, found.st_mtime_ns)


class BlobFolder:
    """blobs/sha256: names are digests, but a name alone proves nothing."""

    def __init__(self, folder: Path, quarantine: Quarantine) -> None:
        self.folder = folder
        self._quarantine = quarantine

    def path(self, record: FileRecord) -> Path:
        """Where the recorded blob lies."""
        return self.folder / record.blob

    def take(self, content: ContentFile, verified: Path | None) -> FileRecord:
        """A blob with this content; `verified` is a complete file that was hashed by the caller.

        A file that lies under the digest's name already is hashed before it is used.

        Raises:
            BlobMissingError: it is not here and `verified` is None.
        """
        target = self.folder / content.sha256
        if target.exists() and not self._is_intact(target, content):
            self._quarantine.take(target, "a blob whose bytes do not have the digest of its name")
        if not target.exists():
            if verified is None:
                raise BlobMissingError(f"the blob {content.sha256[:16]} is not here any more")
            if verified.lstat().st_size != content.size_bytes:
                raise StoreError("a finished partial file changed its size before it was published")
            verified.chmod(PUBLISHED_MODE)
            os.link(verified, target)
        return make_file_record(content, target)

    def give_back(self, content: ContentFile, verified: Path) -> None:
        """Undo `take`: the blob that is this very file is a partial file again."""
        target, found = self.folder / content.sha256, verified.lstat()
        if target.exists() and target.lstat().st_ino == found.st_ino:
            target.unlink()
        if verified.lstat().st_nlink == 1:
            verified.chmod(PARTIAL_MODE)

    def link(self, record: FileRecord, target: Path) -> FileRecord:
        """Give the blob one more name; at the file system's limit of links, a second blob's.

        Returns the record of the blob that was linked.
        """
        source = self.path(record)
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
        else:
            return record
        for number in itertools.count(1):
            copy = self.folder / f"{record.content.sha256}.{number}"
            if not copy.exists():
                self._copy(source, copy, record.content.sha256)
            try:
                os.link(copy, target)
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
            else:
                return make_file_record(record.content, copy)
        raise AssertionError

    def _copy(self, source: Path, target: Path, sha256: str) -> None:
        temporary = temporary_for(target)
        with source.open("rb") as reader, temporary.open("wb") as writer:
            shutil.copyfileobj(reader, writer, _CHUNK_BYTES)
            writer.flush()
            os.fsync(writer.fileno())
        if hash_file(temporary) != sha256:
            temporary.unlink()
            raise StoreError("a second copy of a blob does not have its digest: the disk may fail")
        temporary.chmod(PUBLISHED_MODE)
        temporary.rename(target)

    def _is_intact(self, path: Path, content: ContentFile) -> bool:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != content.size_bytes:
            return False
        return hash_file(path) == content.sha256
