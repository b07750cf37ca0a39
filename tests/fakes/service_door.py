"""A stand-in for a Service: each new connection goes to the next server that answers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Sequence
from typing import Self

_CHUNK = 64 * 1024


class ServiceDoor:
    """`with ServiceDoor(ports) as door: door.port`; all on loopback."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._turns = itertools.cycle(tuple(ports))
        self._servers = len(ports)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone would not wake the thread that waits in accept.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = self._reach()
            if server is None:
                client.close()
                continue
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()

    def _reach(self) -> socket.socket | None:
        for port in itertools.islice(self._turns, self._servers):
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", port))
        return None


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
