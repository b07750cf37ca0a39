"""Ends a whole conversation in time.

A read time-out counts from byte to byte: a store that sends one now and then would keep a thread
for ever, and a few such stores all threads. So each request is cut off at its own deadline.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator


class Leash:
    """Knows the connection that this thread's request uses, and shuts it down at the deadline."""

    def __init__(self) -> None:
        self._held = threading.local()

    @contextlib.contextmanager
    def hold(self, seconds: float) -> Iterator[None]:
        """Cut off what is taken inside of the block after that time."""
        held = _Held()
        timer = threading.Timer(seconds, held.cut)
        timer.daemon = True
        self._held.current = held
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._held.current = None
            held.release()

    def take(self, connection: socket.socket) -> None:
        """This connection is the one that the block uses; a no-op outside of one."""
        held: _Held | None = getattr(self._held, "current", None)
        if held is not None:
            held.take(connection)


class _Held:
    """Second handles of connections: TLS takes the first ones away from those who opened them."""

    def __init__(self) -> None:
        self._handles: list[socket.socket] = []
        self._is_cut = False
        self._lock = threading.Lock()

    def take(self, connection: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                raise TimeoutError("the request is over its deadline")
            self._handles.append(socket.socket(fileno=os.dup(connection.fileno())))

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for handle in self._handles:
                with contextlib.suppress(OSError):
                    handle.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        with self._lock:
            while self._handles:
                self._handles.pop().close()
