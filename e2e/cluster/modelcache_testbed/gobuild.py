"""Building the pinned programs into the cache, once per machine, with visible progress."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.console import say
from modelcache_testbed.errors import BuildFailedError
from modelcache_testbed.folders import cache_folder
from modelcache_testbed.go_toolchain import find_go
from modelcache_testbed.locks import LockHeldError, locked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelcache_testbed.programs import Program

JOBS_VARIABLE = "MODELCACHE_BUILD_JOBS"
_SECONDS_BETWEEN_LINES = 15.0
_SHOWN_ERROR_LINES = 15


def ensure_built(programs: Sequence[Program]) -> None:
    """Build those programs that the cache lacks. Safe beside other processes doing the same."""
    if all(program.path.exists() for program in programs):
        return
    say("programs are missing: building (once per machine, about ten minutes on two cores)")
    # One lock for all builds: two compilations at a time would only slow each other down.
    lock = cache_folder() / "build.lock"
    try:
        with locked(lock, wait=False):
            _build_missing(programs)
    except LockHeldError:
        say("another process is building: waiting for it")
        with locked(lock):
            _build_missing(programs)


def _build_missing(programs: Sequence[Program]) -> None:
    _sweep_interrupted_builds()
    for number, program in enumerate(programs, start=1):
        if not program.path.exists():
            _Build(program, f"{number}/{len(programs)}").run()


def _sweep_interrupted_builds() -> None:
    for leftover in cache_folder().glob(".build-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _environment(go: Path) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if key != "GOFLAGS"}
    path = f"{go.parent}{os.pathsep}{inherited.get('PATH', os.defpath)}"
    return {
        **inherited,
        "PATH": path,
        "CGO_ENABLED": "0",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
    }


class _Build:
    """One ``go build``, reported line by line and installed by a rename."""

    def __init__(self, program: Program, position: str) -> None:
        self._program = program
        self._title = f"building {program.name} {program.version} ({position})"
        self._go = find_go()
        self._environment = _environment(self._go)
        self._started = time.monotonic()
        self._last_line = self._started
        self._total = 0
        self._tail: list[str] = []

    def run(self) -> None:
        """Build and install; BuildFailedError with the last lines of the compiler otherwise."""
        say(self._title)
        self._total = self._count_packages()
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".build-") as scratch:
            built = Path(scratch) / self._program.name
            if self._compile(built):
                shown = "\n".join(f"  {line}" for line in self._tail)
                message = f"{self._program.name} could not be built:\n{shown}"
                raise BuildFailedError(message)
            self._program.path.parent.mkdir(parents=True, exist_ok=True)
            built.replace(self._program.path)
        say(f"{self._title}: done after {self._elapsed()}")

    def _count_packages(self) -> int:
        listing = subprocess.run(
            [str(self._go), "list", "-mod=readonly", "-deps", self._program.package],
            cwd=self._program.module_folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if listing.returncode:
            message = f"{self._program.name} cannot be resolved: {listing.stderr.strip()}"
            raise BuildFailedError(message)
        return len(listing.stdout.split())

    def _compile(self, target: Path) -> int:
        jobs = os.environ.get(JOBS_VARIABLE)
        command = ["nice", "-n", "10"] if shutil.which("nice") else []
        command += [str(self._go), "build", "-v", *(["-p", jobs] if jobs else [])]
        command += [*self._program.build_flags, "-o", str(target), self._program.package]
        with subprocess.Popen(
            command,
            cwd=self._program.module_folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            if process.stderr is None:
                message = "no pipe to the compiler"
                raise BuildFailedError(message)
            for compiled, line in enumerate(process.stderr, start=1):
                self._tail = [*self._tail, line.rstrip()][-_SHOWN_ERROR_LINES:]
                self._report(compiled)
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        return process.returncode

    def _report(self, compiled: int) -> None:
        # What Go's own cache holds is not compiled again, so the total is an upper bound.
        line = f"{self._title}: {compiled} of at most {self._total} packages, {self._elapsed()}"
        now = time.monotonic()
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{line}")
        elif now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            say(line)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._started:.0f} s"
