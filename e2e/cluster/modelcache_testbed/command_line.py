"""`kubectl modelcache` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def run_command(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it with that kubeconfig; its streams are text."""
    return subprocess.run(
        [sys.executable, "-m", "modelcache_cli", *words],
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )


def ask_command(kubeconfig: Path, *words: str, fails: bool = False) -> str:
    """What it says: to stdout, or, where it is to fail, to stderr.

    Raises:
        AssertionError: it failed, or did not, against expectation, or told a traceback.
    """
    result = run_command(kubeconfig, *words)
    assert bool(result.returncode) is fails, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr if fails else result.stdout
