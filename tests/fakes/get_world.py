"""`modelcache-agent get` as a process, and a folder that it fills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from modelcache_testbed.waiting import wait_until

HIDDEN = ".modelcache"


@dataclass
class GetProgram:
    """Its options but for the name; each run is a process of its own."""

    url: str
    authority: Path
    token: Path
    target: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [
            *(sys.executable, "-m", "modelcache_agent.entry", "get"),
            f"--operator-url={self.url}",
            f"--operator-ca-file={self.authority}",
            f"--grant-token-file={self.token}",
            f"--to={self.target}",
            *arguments,
        ]
        environment = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"}
        started = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.running.append(started)
        return started

    def run(self, *arguments: str, seconds: float = 45) -> tuple[int, str]:
        """Its exit code and all that it said."""
        started = self.start(*arguments)
        said, _ = started.communicate(timeout=seconds)
        return started.returncode, said

    def close(self) -> None:
        """End what still runs."""
        for one in self.running:
            if one.poll() is None:
                one.send_signal(signal.SIGKILL)
            one.wait(10)
            if one.stdout is not None:
                one.stdout.close()

    def read(self) -> dict[str, bytes]:
        """The files that a container would see."""
        model = self.target / "model"
        return {
            str(path.relative_to(model)): path.read_bytes()
            for path in model.rglob("*")
            if path.is_file()
        }

    def await_bytes(self, received, least: int) -> None:
        """Until so many bytes have gone over the wire."""
        wait_until(lambda: received() >= least, seconds=30, what=f"{least} bytes")
