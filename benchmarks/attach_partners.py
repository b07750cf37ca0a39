"""What attaches are measured beside: `python attach_partners.py echo|agent FOLDER`.

`echo` listens at `echo.sock` and sends each message back. `agent` has an agent's sockets of
volumes, below `pods`, and loads a model into locked memory, again and again, from `loading` to
`idle`. Each answers a line on its input with a line.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Self

from disk_to_host import describe_file, make_model
from figure import scaled

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from fakes.socket_bench import open_socket_bench
from modelcache_agent.tiers.host.record import LockRecord
from modelcache_agent.tiers.host.tier import HostTier

MIB = 1 << 20
LOADED_BYTES = 256 * MIB
MESSAGE_BYTES = 64
VOLUME = "11111111-1111-1111-1111-111111111111/v"


def serve_echo(folder: Path) -> None:
    def serve() -> None:
        while True:
            line, _ = listener.accept()
            with line:
                line.sendall(line.recv(MESSAGE_BYTES))

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / "echo.sock"))
        listener.listen()
        threading.Thread(target=serve, daemon=True).start()
        for _ in sys.stdin:
            print('""', flush=True)
        os._exit(0)


def serve_agent(folder: Path) -> None:
    """Volumes' sockets, and loading on demand."""
    with open_socket_bench(folder / "pods") as bench, Loading(folder) as loading:
        for line in sys.stdin:
            answer = ""
            if line.strip() == "volume":
                answer = str(bench.add(VOLUME).content)
            elif line.strip() in {"idle", "loading"}:
                loading.set(is_on=line.strip() == "loading")
            print(json.dumps(answer), flush=True)


class Loading:
    """Loads a model into locked memory, again and again, while it is on."""

    def __init__(self, folder: Path) -> None:
        other = folder / "other"
        other.mkdir()
        self._file = describe_file(make_model(other, scaled(LOADED_BYTES, MIB)))
        self._tier = HostTier(2 * self._file.size_bytes, LockRecord(other / "locks"))
        self._is_on = threading.Event()
        self._began = threading.Event()
        self._is_idle = threading.Event()
        self._ends = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self._is_on.set()
        self._thread.join()
        self._tier.close()

    def set(self, *, is_on: bool) -> None:
        """On return it is under way, or has ended."""
        if is_on:
            self._began.clear()
            self._is_on.set()
            self._began.wait()
        else:
            self._is_on.clear()
            self._is_idle.wait()

    def _run(self) -> None:
        while True:
            if not self._is_on.is_set():
                self._is_idle.set()
            self._is_on.wait()
            if self._ends:
                return
            self._is_idle.clear()
            self._began.set()
            self._tier.load("other", [self._file], lambda: False)
            self._tier.unload("other")


if __name__ == "__main__":
    {"echo": serve_echo, "agent": serve_agent}[sys.argv[1]](Path(sys.argv[2]))
