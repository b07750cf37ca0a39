"""Starting and asking the processes of `device_peers.py`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager

from fakes.device_peers import receive

PEERS = [sys.executable, "-m", "fakes.device_peers"]


class Importer:
    """A process that maps what it inherits."""

    def __init__(self, environment, layout, descriptors):
        numbers = [str(fd) for fd in descriptors]
        self.process = subprocess.Popen(
            [*PEERS, "import", layout.decode(), *numbers],
            env=environment,
            pass_fds=descriptors,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, deed: str):
        """Its answer; None if it died of it."""
        self.process.stdin.write(f"{deed}\n")
        self.process.stdin.flush()
        return self.read()

    def read(self):
        """What it says next."""
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


@contextmanager
def exporting(environment, folder, kind):
    """A process that holds a content of `folder`, its layout and its descriptors here."""
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen()
        listener.settimeout(60)
        exporter = subprocess.Popen(
            [*PEERS, "export", folder, address, kind], env=environment, stdin=subprocess.PIPE
        )
        layout, descriptors = receive(listener)
    try:
        yield exporter, layout, descriptors
    finally:
        exporter.kill()
        exporter.wait()
        for fd in descriptors:
            os.close(fd)
