"""How results are printed."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

import yaml


class Format(StrEnum):
    """Output formats for documents."""

    YAML = "yaml"
    JSON = "json"


def render(document: dict[str, Any], output: Format) -> str:
    """The document as text that ends with a newline."""
    if output is Format.JSON:
        return json.dumps(document, indent=2) + "\n"
    return yaml.safe_dump(document, sort_keys=False)
