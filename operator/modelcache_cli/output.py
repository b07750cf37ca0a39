"""How results are printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

import yaml


class Format(StrEnum):
    """Output formats for documents."""

    YAML = "yaml"
    JSON = "json"


class View(StrEnum):
    """Output formats for what people look at."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def document_format(self) -> Format | None:
        """The format of documents; None for tables."""
        return None if self in {View.TABLE, View.WIDE} else Format(self.value)


def render(document: dict[str, Any], output: Format) -> str:
    """The document as text that ends with a newline."""
    text = json.dumps(document, indent=2)
    if output is Format.JSON:
        return f"{text}\n"
    # What YAML knows no form of, words of enumerations, JSON has made plain.
    return yaml.safe_dump(json.loads(text), sort_keys=False)


def render_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines with the cells of each column below each other; the first row is the head."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
