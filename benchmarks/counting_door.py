"""A door before a server that passes bytes on unchanged and counts them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

_BLOCK = 256 * 1024


class CountingDoor:
    """`served` counts what was handed to clients, heads of answers too, `asked` what they sent."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.served = self.asked = 0
        self._upstream = upstream
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the end: the listening socket was closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),  # nobody behind the door
            client,
            socket.create_connection(self._upstream) as server,
        ):
            asking = threading.Thread(
                target=_pass_on, args=(client, server, self._count_asked), daemon=True
            )
            asking.start()
            _pass_on(server, client, self._count)
            asking.join()

    def _count(self, amount: int) -> None:
        with self._lock:
            self.served += amount

    def _count_asked(self, amount: int) -> None:
        with self._lock:
            self.asked += amount


def _pass_on(
    source: socket.socket, target: socket.socket, count: Callable[[int], None] | None = None
) -> None:
    """Until either end hangs up; then both do."""
    buffer = memoryview(bytearray(_BLOCK))
    with contextlib.suppress(OSError):
        while received := source.recv_into(buffer):
            target.sendall(buffer[:received])
            if count is not None:
                count(received)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
