"""Runs one figure by name, or all: `python benchmarks/run.py [NAME]`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from figure import keep, print_table

HERE = Path(__file__).parent
_NOT_FIGURES = {"run", "figure"}


def figure_names() -> list[str]:
    """Every file here with a `measure()` is a figure; its name has dashes for underscores."""
    stems = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in _NOT_FIGURES)
    return [stem.replace("_", "-") for stem in stems if "\ndef measure(" in source_of(stem)]


def source_of(stem: str) -> str:
    return (HERE / f"{stem}.py").read_text()


def main() -> int:
    known = figure_names()
    asked = sys.argv[1:] or known
    unknown = [name for name in asked if name not in known]
    if unknown:
        print(f"no such figure: {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    figures = []
    for name in asked:
        print(f"{name}:", flush=True)
        figure = importlib.import_module(name.replace("-", "_")).measure()
        keep(figure)
        figures.append(figure)
    print_table(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
