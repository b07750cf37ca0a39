"""Tables for people, JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts; without a head, names and values."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def lines(self) -> list[str]:
        """Columns as wide as they need; hostile names cannot break out of theirs."""
        every = [list(self.head), *self.rows] if self.head else list(self.rows)
        safe = [[_printable(cell) for cell in row] for row in every]
        widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in safe
        ]


def write(document: object, table: Table, *, as_json: bool) -> None:
    """Print one of the two."""
    if as_json:
        print(json.dumps(document, indent=2))
        return
    for line in table.lines():
        print(line)


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
