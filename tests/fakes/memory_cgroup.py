"""A real memory cgroup below our own, of version 1 or 2, for one process at a time."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_V1 = re.compile(r"^\d+:(?:[\w=]+,)*memory(?:,[\w=]+)*:(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class MemoryCgroup:
    folder: Path
    version: int

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        """A Python program with its arguments, inside from its first instruction on."""
        script = 'echo $$ > "$1"; shift; exec "$@"'
        return subprocess.run(
            ["sh", "-c", script, "sh", self.folder / "cgroup.procs", sys.executable]
            + [str(word) for word in command],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @property
    def peak_bytes(self) -> int:
        """The most that was ever charged, page cache included."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        return int((self.folder / name).read_text())


def find_parent() -> tuple[Path, int]:
    memberships = Path("/proc/self/cgroup").read_text()
    first = _V1.search(memberships)
    if first is not None:
        ours = _ROOT / "memory" / first.group(1).strip("/")
        return (ours if ours.is_dir() else _ROOT / "memory"), 1
    return _ROOT, 2


@contextmanager
def memory_cgroup(limit_bytes: int):
    """Raises OSError where none can be made."""
    parent, version = find_parent()
    folder = parent / f"modelcache-test-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    try:
        name = "memory.limit_in_bytes" if version == 1 else "memory.max"
        (folder / name).write_text(str(limit_bytes))
        yield MemoryCgroup(folder, version)
    finally:
        folder.rmdir()
