"""A private mount namespace with a kubelet's folder in it, for tests of real mounts.

Nothing that is mounted here is seen outside, and all of it goes with the room's last process.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

READER_UID = 65532
_CLONE_NEWNS = 0x20000


@dataclass
class MountRoom:
    """Everybody may walk through `folder`, so that readers of other users can be tried."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="mr-", dir="/tmp")))
    keeper: subprocess.Popen | None = None

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def kubelet(self) -> Path:
        return self.folder / "kubelet"

    def __enter__(self) -> Self:
        self.folder.chmod(0o755)
        self.store.mkdir()
        (self.kubelet / "pods").mkdir(parents=True)
        script = (
            f"mount --bind {self.kubelet} {self.kubelet} && mount --make-rshared {self.kubelet}"
            " && echo ready && exec cat"
        )
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
        self.keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.keeper.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_exc) -> None:
        self.keeper.stdin.close()
        self.keeper.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *arguments: str, uid: int | None = None) -> list[str]:
        enter = ["nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt"]
        if uid is not None:
            ids = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
            enter += ["setpriv", *ids, "--bounding-set=-all", "--inh-caps=-all"]
        return [*enter, *arguments]

    def run(self, *arguments: str, uid: int | None = None) -> subprocess.CompletedProcess:
        command = self.command(*arguments, uid=uid)
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    def start(self, *arguments: str, uid: int | None = None, **options) -> subprocess.Popen:
        return subprocess.Popen(self.command(*arguments, uid=uid), **options)

    def start_program(self, *arguments: str, uid: int | None = None, **options) -> subprocess.Popen:
        """`modelcache-agent` with these arguments, of this source tree."""
        command = [sys.executable, "-m", "modelcache_agent.entry", *arguments]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
        return self.start(*command, uid=uid, env=env, **options)

    def inside(self, work) -> int:
        """Run the work in a forked child within the room; its exit code."""
        pid = os.fork()
        if pid == 0:
            try:
                with Path(f"/proc/{self.keeper.pid}/ns/mnt").open("rb") as namespace:
                    assert ctypes.CDLL(None).setns(namespace.fileno(), _CLONE_NEWNS) == 0
                work()
            except BaseException as error:  # noqa: BLE001 - a child must not return into pytest
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(70)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def mounts(self) -> list[str]:
        """Where something is mounted below the kubelet's pods or the store."""
        lines = Path(f"/proc/{self.keeper.pid}/mountinfo").read_text().splitlines()
        points = [line.split()[4] for line in lines]
        return [p for p in points if p.startswith((f"{self.kubelet}/", f"{self.store}/"))]

    def target(self, uid: str, volume: str = "models") -> Path:
        """What the kubelet makes ready before it calls the driver."""
        target = self.kubelet / "pods" / uid / "volumes" / "kubernetes.io~csi" / volume / "mount"
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def end(process: subprocess.Popen, number: int = signal.SIGKILL) -> int:
    process.send_signal(number)
    return process.wait(20)
