"""Advisory locks between processes that may be removed together with what they guard."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from modelcache_testbed.errors import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class LockHeldError(TestbedError):
    """Another process holds the lock."""


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _open_locked(path: Path, *, wait: bool) -> int:
    mode = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, mode)
        except OSError as error:
            os.close(descriptor)
            message = f"{path} is held by another process"
            raise LockHeldError(message) from error
        # The holder before us may have unlinked the file; then nobody else sees our lock.
        if _is_current(descriptor, path):
            return descriptor
        os.close(descriptor)


@contextmanager
def locked(path: Path, *, wait: bool = True, remove: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; released by the kernel if this process dies.

    With ``wait=False`` a held lock raises LockHeldError. ``remove`` unlinks the file at the end.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _open_locked(path, wait=wait)
    try:
        yield
    finally:
        if remove:
            path.unlink(missing_ok=True)
        os.close(descriptor)
