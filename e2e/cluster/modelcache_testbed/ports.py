"""Free loopback ports that stay with an instance.

Ports come from below the kernel's ephemeral range, so that no outgoing connection takes one
between two runs of a program. A machine-wide ledger keeps two instances from choosing the same.
"""

from __future__ import annotations

import json
import random
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterable

LOWEST, HIGHEST = 20000, 31999
LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Say whether a server could listen on ``port`` now."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


class PortLedger:
    """The ports given to instances, one entry per port, valid while its owner's folder exists."""

    def __init__(self, file: Path) -> None:
        """Use ``file`` as the ledger; created on first use."""
        self._file = file

    def reserve(self, names: Iterable[str], owner: Path) -> dict[str, int]:
        """Give ``owner`` one free port per name. Safe beside other processes."""
        with locked(self._file.with_suffix(".lock")):
            taken = self._read()
            chosen: dict[str, int] = {}
            candidates = iter(random.sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST))
            for name in names:
                chosen[name] = next(
                    (p for p in candidates if p not in taken and is_free(p)),
                    0,
                )
                if not chosen[name]:
                    message = f"no free port between {LOWEST} and {HIGHEST}"
                    raise TestbedError(message)
            taken.update(dict.fromkeys(chosen.values(), str(owner)))
            self._write(taken)
        return chosen

    def release(self, owner: Path) -> None:
        """Give back all ports of ``owner``."""
        with locked(self._file.with_suffix(".lock")):
            self._write({p: o for p, o in self._read().items() if o != str(owner)})

    def _read(self) -> dict[int, str]:
        try:
            entries = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return {int(port): owner for port, owner in entries.items() if Path(owner).exists()}

    def _write(self, entries: dict[int, str]) -> None:
        scratch = self._file.with_suffix(".new")
        scratch.write_text(json.dumps(entries))
        scratch.replace(self._file)
