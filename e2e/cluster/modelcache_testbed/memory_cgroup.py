"""A real memory cgroup below our own, of version 1 or 2, for single processes."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_V1 = re.compile(r"^\d+:(?:[\w=]+,)*memory(?:,[\w=]+)*:(.*)$", re.MULTILINE)
_ENTER = 'echo $$ > "$1"; shift; exec "$@"'


@dataclass(frozen=True)
class MemoryCgroup:
    """One that was made here. Sizes in bytes."""

    folder: Path
    version: int

    def wrap(self, command: Sequence[object]) -> list[str]:
        """The command, inside from its first instruction on."""
        return ["sh", "-c", _ENTER, "sh", str(self.folder / "cgroup.procs"), *map(str, command)]

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        """Run a Python program with its arguments inside."""
        return subprocess.run(
            self.wrap([sys.executable, *command]),
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

    @property
    def charged_bytes(self) -> int:
        """What is charged now, page cache included."""
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return int((self.folder / name).read_text())

    @property
    def file_bytes(self) -> int:
        """Page cache that is charged here."""
        name = "cache" if self.version == 1 else "file"
        stat = (self.folder / "memory.stat").read_text()
        found = re.search(rf"^{name} (\d+)$", stat, re.MULTILINE)
        return 0 if found is None else int(found.group(1))


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int | None = None, *, name: str = "test") -> Iterator[MemoryCgroup]:
    """One for the block, which its processes do not outlive.

    Raises:
        OSError: none can be made here.
    """
    parent, version = _find_parent()
    folder = parent / f"{_prefix(name)}{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    try:
        if limit_bytes is not None:
            file = "memory.limit_in_bytes" if version == 1 else "memory.max"
            (folder / file).write_text(str(limit_bytes))
        yield MemoryCgroup(folder, version)
    finally:
        folder.rmdir()


def remove_left(name: str) -> None:
    """Remove what a killed run has left of that name."""
    parent, _version = _find_parent()
    for folder in parent.glob(f"{_prefix(name)}*"):
        # Still in use by another run of this machine.
        with contextlib.suppress(OSError):
            folder.rmdir()


def _prefix(name: str) -> str:
    return f"modelcache-{name}-"


def _find_parent() -> tuple[Path, int]:
    memberships = Path("/proc/self/cgroup").read_text()
    first = _V1.search(memberships)
    if first is not None:
        ours = _ROOT / "memory" / first.group(1).strip("/")
        return (ours if ours.is_dir() else _ROOT / "memory"), 1
    return _ROOT, 2
