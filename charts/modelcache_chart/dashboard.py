"""Grafana's JSON of what dashboard.yaml says is shown, and by which queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

_COLUMNS: Final = 24
_WIDTH: Final = 8
_HEIGHT: Final = 8
_SCHEMA: Final = 39
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_CONTENTS: Final = Path(__file__).with_name("dashboard.yaml")


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. `queries` are by the legend of their series; `unit` is Grafana's id of one."""

    title: str
    unit: str
    queries: dict[str, str]
    what: str = ""
    kind: str = "timeseries"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def read_rows() -> tuple[Row, ...]:
    """What is shown, from the top."""
    rows = yaml.safe_load(_CONTENTS.read_text(encoding="utf-8"))
    return tuple(
        Row(row["title"], tuple(Panel(**panel) for panel in row["panels"])) for row in rows
    )


def render_dashboard() -> str:
    """The whole file, always the same for the same panels."""
    variable = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    document = {
        "uid": "modelcache",
        "title": "ModelCache",
        "tags": ["modelcache"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [variable]},
        "panels": list(_lay_out(read_rows())),
    }
    return json.dumps(document, indent=2) + "\n"


def _lay_out(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    number, top, beside = 0, 0, _COLUMNS // _WIDTH
    for row in rows:
        number += 1
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": place, "panels": []}
        top += 1
        for index, panel in enumerate(row.panels):
            number += 1
            line, column = divmod(index, beside)
            yield _draw(panel, number, column * _WIDTH, top + line * _HEIGHT)
        top += _HEIGHT * -(-len(row.panels) // beside)


def _draw(panel: Panel, number: int, left: int, top: int) -> dict[str, Any]:
    targets = [
        {"refId": reference, "datasource": _SOURCE, "expr": query, "legendFormat": legend}
        for reference, (legend, query) in zip("ABCDEFGH", panel.queries.items(), strict=False)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.what,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": left, "y": top},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }
