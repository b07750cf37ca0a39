"""The demo's own programs: processes that answer line by line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from modelcache_testbed.errors import TestbedError

if TYPE_CHECKING:
    from modelcache_testbed.memory_cgroup import MemoryCgroup

_PROGRAMS = "modelcache_testbed.demo.programs"
_END_SECONDS = 20


class Program:
    """One of `demo/programs`. It loads its libraries meanwhile: `ready` waits for them."""

    def __init__(
        self, name: str, *arguments: object, log: Path, cgroup: MemoryCgroup | None = None
    ) -> None:
        """Start it; what it says besides its answers goes to the log."""
        command = [sys.executable, "-m", f"{_PROGRAMS}.{name}", *map(str, arguments)]
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command if cgroup is None else cgroup.wrap(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def ready(self) -> Self:
        """Wait until it has loaded its libraries.

        Raises:
            TestbedError: it has ended instead.
        """
        self._hear()
        return self

    def ask(self, line: str = "") -> Any:
        """Send a line and return the answer; TestbedError if it has ended instead."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._hear()

    def end(self) -> None:
        """Let it end; nothing is left of it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            words = self._log.read_text(errors="replace").strip().splitlines()
            raise TestbedError(f"{self._log.stem} has ended: {words[-1] if words else 'no word'}")
        return json.loads(line)
