"""Hearing at once that a volume came or went, instead of looking all the time."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)
_IN_NONBLOCK_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC
_IN_ATTRIB: Final = 0x4
_READ_BYTES: Final = 65536

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def noticing(pods: Path, on_notice: Callable[[], None]) -> Iterator[None]:
    """Call `on_notice` in the running loop after each `give_notice`, while the context is open.

    Where the kernel gives no more watches, volumes are seen when the agent looks around anyway.
    """
    fd = _libc.inotify_init1(_IN_NONBLOCK_CLOEXEC)
    if fd < 0 or _libc.inotify_add_watch(fd, os.fsencode(pods), _IN_ATTRIB) < 0:
        reason = os.strerror(ctypes.get_errno())
        _log.warning("volumes are noticed late, because inotify does not work: %s", reason)
        if fd >= 0:
            os.close(fd)
        yield
        return

    def drain() -> None:
        try:
            os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        on_notice()

    loop = asyncio.get_running_loop()
    loop.add_reader(fd, drain)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        os.close(fd)
