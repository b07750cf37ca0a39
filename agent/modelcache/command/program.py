"""`modelcache --help`.

Exit codes: 0 done, 1 the model is not complete or the pod not drained in time, 2 there is no such
volume or version, or the command is wrong, 3 the volume is refused, 4 a file is damaged.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TextIO

from modelcache.attaching import attach, attach_folder
from modelcache.attachment import Attachment
from modelcache.command.bench import measure
from modelcache.command.output import Table, write
from modelcache.draining import drain
from modelcache.errors import (
    BadFileError,
    ModelCacheError,
    NotReadyError,
    VolumeRefusedError,
)
from modelcache.volume import find_volume
from modelcache_api.quantities import format_bytes
from modelcache_api.volume_holders import describe_holders
from modelcache_api.volume_progress import (
    VolumeProgress,
    describe_progress,
    format_progress_line,
)

EXIT_DONE: Final = 0
EXIT_NOT_READY: Final = 1
EXIT_NOT_THERE: Final = 2
EXIT_REFUSED: Final = 3
EXIT_BAD_FILE: Final = 4
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)?")
_SECONDS: Final = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
# A log that says nothing looks hung.
_REMIND_SECONDS: Final = 30.0
# Pods get 30 s to end, unless they say otherwise; the rest is for what comes after.
_DRAIN_SECONDS: Final = 25.0
_SETTLING_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what goes wrong is one line."""
    given = _parser().parse_args(arguments)
    warnings.showwarning = _show_warning
    try:
        result: int = given.run(given)
    except ModelCacheError as error:
        print(f"modelcache {given.command}: {error}", file=sys.stderr)
        return _exit_code(error)
    except OSError as error:
        print(f"modelcache {given.command}: {error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_BAD_FILE
    except KeyboardInterrupt:
        return 130
    return result


def _exit_code(error: ModelCacheError) -> int:
    match error:
        case NotReadyError():
            return EXIT_NOT_READY
        case VolumeRefusedError():
            return EXIT_REFUSED
        case BadFileError():
            return EXIT_BAD_FILE
    return EXIT_NOT_THERE


def _attach(given: argparse.Namespace) -> int:
    with _open(given) as attachment:
        progress = _settled(attachment)
        said: Mapping[str, object] = {
            "cache": attachment.cache,
            "path": str(attachment.path),
            "version": progress.version_uid if progress else "",
            "digest": progress.content_digest if progress else "",
            "sizeBytes": progress.size_bytes if progress else 0,
            "weights": attachment.weights(),
            "connected": attachment.is_connected,
        }
    rows = [[name, _say(value)] for name, value in said.items()]
    write(said, Table((), rows), as_json=given.json)
    return EXIT_DONE


def _settled(attachment: Attachment) -> VolumeProgress | None:
    """What is said of a complete model: the folder is there a moment before the word."""
    deadline = time.monotonic() + _SETTLING_SECONDS
    while (progress := attachment.progress()) is not None:
        if progress.content_digest or time.monotonic() > deadline:
            break
        time.sleep(_LOOK_SECONDS)
    return progress


def _index(given: argparse.Namespace) -> int:
    with _open(given) as attachment:
        version = attachment.version()
        index = version.index(given.folder, files=given.file or None)
        root = version.path / given.folder
        tensors = [index.info(name) for name in index]
    said = {
        "shared": index.is_shared,
        "tensors": [
            {
                "name": found.name,
                "dtype": found.dtype,
                "shape": list(found.shape),
                "sizeBytes": found.size_bytes,
                "file": str(found.file.relative_to(root)),
                "offset": found.offset,
            }
            for found in tensors
        ],
    }
    rows = [
        [t.name, t.dtype, "x".join(map(str, t.shape)) or "-", str(t.size_bytes), t.file.name]
        for t in tensors
    ]
    write(said, Table(("NAME", "DTYPE", "SHAPE", "BYTES", "FILE"), rows), as_json=given.json)
    return EXIT_DONE


def _wait(given: argparse.Namespace) -> int:
    began = time.monotonic()
    told: VolumeProgress | None = None
    told_at = 0.0

    def tell(progress: VolumeProgress) -> None:
        nonlocal told, told_at
        now = time.monotonic()
        if progress != told or now - told_at >= _REMIND_SECONDS:
            told, told_at = progress, now
            say(describe_progress(progress))

    def say(text: str) -> None:
        print(format_progress_line(time.monotonic() - began, text), flush=True)

    with attach(
        given.cache, root=given.volume, timeout=given.timeout, on_progress=tell
    ) as attachment:
        progress = attachment.progress()
        size = f"  {format_bytes(progress.size_bytes)}" if progress and progress.size_bytes else ""
        say(f"{attachment.cache or attachment.path} is ready{size}")
    return EXIT_DONE


def _bench(given: argparse.Namespace) -> int:
    with _open(given) as attachment:
        version = attachment.version()
        with version.safetensors(given.folder, files=given.file or None) as weights:
            files = weights.files
        found = measure(version, given.folder, files, given.rounds)
    rows = [
        [row.name, f"{row.seconds:.4f}", f"{row.gigabytes_per_second:.2f}", f"{row.ratio:.2f}"]
        for row in found
    ]
    said = [row.document() for row in found]
    write(said, Table(("READ BY", "SECONDS", "GB/S", "OF PATH"), rows), as_json=given.json)
    return EXIT_DONE


def _drain(given: argparse.Namespace) -> int:
    began = time.monotonic()

    def say(text: str) -> None:
        print(format_progress_line(time.monotonic() - began, text), flush=True)

    volume = find_volume(given.volume, os.environ)
    volume.progress_of(given.cache)
    attached = drain(volume, given.timeout, say)
    if attached is None:
        say("given up: the node's agent did not say who is attached")
    elif attached:
        say(f"given up: still attached is {describe_holders(attached)}")
    else:
        say("drained: no process is attached")
        return EXIT_DONE
    return EXIT_NOT_READY


def _open(given: argparse.Namespace) -> Attachment:
    """What is complete now: only `wait` waits."""
    if given.path is not None:
        return attach_folder(given.path)
    return attach(given.cache, root=given.volume, on_miss="raise")


def _say(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{track} {share}%" for track, share in value.items())
    return "-" if value in {None, ""} else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="modelcache", description="The model of this pod.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(
        name: str, text: str, run: Callable[[argparse.Namespace], int]
    ) -> argparse._ActionsContainer:
        found = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        found.add_argument(
            "--volume", help="where the pod's volume is mounted; default: as injected"
        )
        found.add_argument("--cache", help="the ModelCache that is expected there")
        found.set_defaults(run=run)
        return found

    attached = add("attach", "Print path, version, digest and weights.", _attach)
    index = add("index", "Print where each tensor lies.", _index)
    waiting = add("wait", "Wait until the model is complete.", _wait)
    waiting.add_argument("--timeout", type=_duration, help="e.g. 30m; default: for ever")
    draining = add(
        "drain", "Tell the pod's processes to take no new work, and wait for them.", _drain
    )
    draining.add_argument(
        "--timeout",
        type=_duration,
        default=_DRAIN_SECONDS,
        help=f"how long to wait; default: {_DRAIN_SECONDS:.0f}s",
    )
    bench = add("bench", "Read the weights by path and by library, and compare.", _bench)
    bench.add_argument("--rounds", type=_rounds, default=3, help="rounds, the best counts")
    for command in (attached, index, bench):
        command.add_argument("--path", help="a plain folder in place of the volume")
        command.add_argument("--json", action="store_true", help="print JSON")
    for command in (index, bench):
        command.add_argument("--folder", default=".", help="folder of the weights, e.g. unet")
        command.add_argument("--file", action="append", help="a file of it; may be repeated")
    return parser


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write for example 60s or 5m")
    return float(match.group(1)) * _SECONDS[match.group(2)]


def _rounds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:  # noqa: PLR2004 - said in the message
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 100")
    return int(text)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """One line for people, in place of Python's two."""
    del category, filename, lineno, file, line
    print(f"modelcache: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
