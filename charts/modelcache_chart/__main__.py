"""Writes what in the chart is generated, or says what is stale.

python -m modelcache_chart --write ROOT | --check ROOT
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from modelcache_chart.crd_templates import render_crd_templates
from modelcache_chart.dashboard import render_dashboard
from modelcache_chart.values_page import UndocumentedError, render_values_page

_CHART: Final = Path("charts/modelcache")
_CRDS: Final = _CHART / "templates" / "crds"
_DASHBOARD: Final = _CHART / "files" / "monitoring" / "dashboard.json"
_PAGE: Final = Path("docs/values.md")


def render(root: Path) -> dict[Path, str]:
    """Every generated file, relative to the repository's root."""
    files = {_CRDS / name: text for name, text in render_crd_templates().items()}
    values = (root / _CHART / "values.yaml").read_text(encoding="utf-8")
    return files | {_PAGE: render_values_page(values), _DASHBOARD: render_dashboard()}


def find_stale(root: Path) -> list[Path]:
    """Files that differ from what they are made from, or should not be there."""
    wanted = render(root)
    stale = {path for path, text in wanted.items() if _read(root / path) != text}
    written = {file.relative_to(root) for file in (root / _CRDS).glob("*.yaml")}
    return sorted(stale | (written - wanted.keys()))


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 if something is stale or cannot be made."""
    parser = argparse.ArgumentParser(prog="modelcache_chart", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", type=Path, metavar="ROOT")
    choice.add_argument("--check", type=Path, metavar="ROOT")
    options = parser.parse_args(arguments)
    try:
        if options.write is not None:
            for path, text in render(options.write).items():
                (options.write / path).parent.mkdir(parents=True, exist_ok=True)
                (options.write / path).write_text(text, encoding="utf-8")
            return 0
        stale = find_stale(options.check)
    except UndocumentedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for path in stale:
        sys.stderr.write(f"{path} is not up to date: run make gen\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
