"""Where words for people go: progress to stderr, results to stdout."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Write one line of progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def answer(text: str) -> None:
    """Write one line of result, the part a script reads."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
