"""Requests from a CSV file, one at a time."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from modelcache_simulator.errors import SimulationError


class Request(NamedTuple):
    """Somebody asks for a model at a time (Unix seconds) and uses it for some seconds."""

    at: float
    model: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns of one kind of trace are called; durations may be missing.

    `skips_nameless`: that kind has requests without a model, which are no requests for one.
    """

    time: str
    model: str
    seconds: str
    skips_nameless: bool = False


OURS: Final = Columns("time", "model", "seconds")
GENTD26: Final = Columns(
    "gmt_create", "checkpoint_model_version_id", "exec_time_seconds", skips_nameless=True
)
_KNOWN: Final = (OURS, GENTD26)


def read_requests(path: Path) -> Iterator[Request]:
    """The requests of a trace, which is never held in memory as a whole.

    Raises:
        SimulationError: the file cannot be read, its columns are not known, or a line is wrong.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            header = next(rows, [])
            columns = _find_columns(path, header)
            yield from _parse(path, rows, header, columns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SimulationError(f"cannot read the trace {path}: {error}") from error


def write_requests(path: Path, requests: Iterator[Request]) -> int:
    """Write a trace that `read_requests` reads; how many requests it has."""
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow((OURS.time, OURS.model, OURS.seconds))
        for request in requests:
            rows.writerow((f"{request.at:.3f}", request.model, f"{request.seconds:.3f}"))
            count += 1
    return count


def _find_columns(path: Path, header: list[str]) -> Columns:
    for columns in _KNOWN:
        if columns.time in header and columns.model in header:
            return columns
    raise SimulationError(
        f"the trace {path} has the columns {', '.join(header) or 'of an empty file'}: the first "
        f"line must name {OURS.time} and {OURS.model} (and {OURS.seconds}, if known)"
    )


def _parse(
    path: Path, rows: Iterator[list[str]], header: list[str], columns: Columns
) -> Iterator[Request]:
    time_at, model_at = header.index(columns.time), header.index(columns.model)
    seconds_at = header.index(columns.seconds) if columns.seconds in header else None
    before = float("-inf")
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        try:
            at = _parse_time(row[time_at])
            seconds = float(row[seconds_at] or 0.0) if seconds_at is not None else 0.0
            model = row[model_at]
        except (ValueError, IndexError) as error:
            raise SimulationError(f"{path}, line {number}: {error}") from error
        if not model and columns.skips_nameless:
            continue
        if not model or not 0 <= seconds < float("inf"):
            raise SimulationError(f"{path}, line {number}: no model, or no duration in seconds")
        if not at >= before:
            raise SimulationError(
                f"{path}, line {number}: it is earlier than the line before; sort the trace by time"
            )
        before = at
        yield Request(at, model, seconds)


def _parse_time(text: str) -> float:
    """Unix seconds, or ISO 8601; a time without a zone is UTC."""
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def count_models(requests: Iterator[Request]) -> Mapping[str, int]:
    """How often each model is asked for."""
    counts: dict[str, int] = {}
    for request in requests:
        counts[request.model] = counts.get(request.model, 0) + 1
    return counts
