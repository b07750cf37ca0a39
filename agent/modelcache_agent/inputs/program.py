"""`modelcache-agent replay FILE...`: are the decisions of a log made again?

Exit codes: 0 all of them, 1 not all, 2 a file cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from modelcache_agent.inputs.records import LogError
from modelcache_agent.inputs.replay import summarize


def main(arguments: Sequence[str]) -> int:
    """Replay each file alone, and say what came of it."""
    parser = argparse.ArgumentParser(
        prog="modelcache-agent replay",
        description="Makes the decisions of input logs again and compares their hashes.",
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    try:
        outcomes = [_replay(path) for path in parser.parse_args(list(arguments)).files]
    except LogError as error:
        print(f"modelcache-agent replay: {error}", file=sys.stderr)  # noqa: T201 - a program
        return 2
    return 0 if all(outcomes) else 1


def _replay(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            summary = summarize(file)
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror}") from error
    except LogError as error:
        raise LogError(f"{path}: {error}") from error
    print(f"{path}: {summary.describe()}")  # noqa: T201 - a program
    return summary.differences == 0
