"""The wait container: `modelcache-agent wait --help`. It ends when the model is complete.

Reads status.json in the pod's volume and nothing else: no network, no API server. Exit codes:
0 the model is there, 1 it is not in time, 2 there is no such volume, 3 the volume is refused.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelcache_agent.config import (
    ConfigError,
    Option,
    Program,
    parse_duration,
    parse_path,
    read_options,
)
from modelcache_api.names import CSI_DRIVER, VOLUME_MODEL_FOLDER, VOLUME_STATUS_FILE, VolumeState
from modelcache_api.quantities import format_bytes
from modelcache_api.volume_progress import (
    MAX_PROGRESS_BYTES,
    VolumeProgress,
    decode_progress,
    describe_progress,
    format_progress_line,
)

EXIT_READY: Final = 0
EXIT_TIMEOUT: Final = 1
EXIT_NO_VOLUME: Final = 2
EXIT_REFUSED: Final = 3
_EXIT_TERMINATED: Final = 128 + signal.SIGTERM
_LOOK_SECONDS: Final = 0.25
# A log that says nothing looks hung.
_REMIND_SECONDS: Final = 30.0
_PROGRAM: Final = Program("modelcache-agent wait", "Waits until a pod's model is complete.")
OPTIONS: Final = (
    Option("volume", "Where the pod's volume is mounted.", parse_path, "/mnt/models"),
    Option("timeout", "How long to wait, e.g. 30m; default: for ever.", parse_duration),
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Time and the log."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    print_line: Callable[[str], None]


def main(arguments: Sequence[str]) -> int:
    """Wait and tell."""
    # The first process of a container ignores SIGTERM unless it says otherwise.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_EXIT_TERMINATED))
    around = Surroundings(time.monotonic, time.sleep, _print_line)
    try:
        values = read_options(_PROGRAM, OPTIONS, arguments, os.environ)
    except ConfigError as error:
        around.print_line(f"modelcache-agent wait: {error}")
        return EXIT_NO_VOLUME
    return wait_for_model(values["volume"], values["timeout"], around)


def wait_for_model(volume: Path, timeout: float | None, around: Surroundings) -> int:
    """Until the model is there, the time is over or there is nothing to wait for."""
    began = told_at = around.monotonic()
    told: VolumeProgress | None = None
    while True:
        progress = _read_progress(volume / VOLUME_STATUS_FILE)
        now = around.monotonic()
        seconds = now - began
        if progress is None:
            around.print_line(
                f"{volume} is no volume of {CSI_DRIVER}: mount the pod's volume there"
            )
            return EXIT_NO_VOLUME
        if (volume / VOLUME_MODEL_FOLDER).is_dir():
            size = f"  {format_bytes(progress.size_bytes)}" if progress.size_bytes else ""
            around.print_line(format_progress_line(seconds, f"{progress.cache} is ready{size}"))
            return EXIT_READY
        if progress.state is VolumeState.REFUSED:
            around.print_line(
                format_progress_line(seconds, f"{progress.cache} is refused: {progress.message}")
            )
            return EXIT_REFUSED
        if timeout is not None and seconds >= timeout:
            around.print_line(
                format_progress_line(seconds, f"given up: {describe_progress(progress)}")
            )
            return EXIT_TIMEOUT
        if progress != told or now - told_at >= _REMIND_SECONDS:
            around.print_line(format_progress_line(seconds, describe_progress(progress)))
            told, told_at = progress, now
        around.sleep(_LOOK_SECONDS)


def _read_progress(path: Path) -> VolumeProgress | None:
    try:
        with path.open("rb") as file:
            return decode_progress(file.read(MAX_PROGRESS_BYTES))
    except OSError:
        return None


def _print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the container's log
