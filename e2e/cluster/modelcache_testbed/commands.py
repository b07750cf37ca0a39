"""Running a program of the machine to its end."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from modelcache_testbed.errors import ProgramMissingError, TestbedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SHOWN_LINES = 15


def run_quietly(
    *argv: str,
    stdin: str | None = None,
    seconds: float = 600,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Return what the program prints; TestbedError with the end of its errors if it fails."""
    try:
        result = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=environment,
            cwd=folder,
        )
    except FileNotFoundError:
        raise ProgramMissingError(f"{argv[0]} is not on this machine") from None
    except subprocess.TimeoutExpired:
        raise TestbedError(f"{argv[0]}: no end after {seconds:g} s") from None
    if result.returncode:
        lines = (result.stderr.strip() or result.stdout.strip()).splitlines()[-_SHOWN_LINES:]
        shown = "\n".join(f"  {line}" for line in lines)
        raise TestbedError(f"{argv[0]} ended with {result.returncode}:\n{shown}")
    return result.stdout
