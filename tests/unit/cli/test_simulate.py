"""`kubectl modelcache simulate` and `make-trace`, as a person calls them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from modelcache_cli.__main__ import app

SHAPE = ["--models", "12", "--requests", "400", "--gap", "300"]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    done = CliRunner().invoke(app, ["make-trace", "--out", str(path), *SHAPE])
    assert done.output == f"wrote 400 requests to {path}\n"
    return path


def simulate(trace, *arguments):
    return CliRunner().invoke(app, ["simulate", "--trace", str(trace), *arguments])


def test_policies_are_compared_with_intervals_pictures_and_json(trace, tmp_path):
    out = tmp_path / "out"
    done = simulate(
        trace,
        *("--capacity", "host=100Gi", "--capacity", "gpu=20Gi,host=100Gi,disk=400Gi"),
        *("--policy", "value,lru", "--seeds", "2", "--processes", "2"),
        *("--out", str(out), "--plots"),
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == (out / "table.txt").read_text()
    rows = json.loads((out / "table.json").read_text())
    assert {row["policy"] for row in rows} == {"value", "lru", "belady"}
    for row in rows:
        figure = row["figures"]["load_seconds_per_attach"]
        assert figure["low"] <= figure["mean"] <= figure["high"]
    for name in ("hit-rate", "load-seconds", "occupancy"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--capacity", "ram=1Gi"), "write each of gpu, host, disk at most once"),
        (("--capacity", "host=much"), "is not a quantity of bytes"),
        (("--capacity", "host=0"), "leave out a tier of 0 bytes"),
        (("--capacity", "host=1Gi", "--policy", "random"), "neither be reproduced nor explained"),
        (("--capacity", "host=1Gi", "--idle", "soon"), "is not a duration"),
        (("--capacity", "host=1Gi", "--catalog", "none.yaml"), "cannot read the catalogue"),
        (("--capacity", "host=1Gi", "--plots"), "--plots needs a folder"),
    ],
)
def test_what_cannot_be_simulated_is_said_in_one_line(trace, arguments, says):
    done = simulate(trace, *arguments)
    assert done.exit_code == 1
    assert says in done.stderr
    assert "Traceback" not in done.output


def test_seeds_are_refused_where_all_sizes_are_known(trace, tmp_path):
    catalogue = tmp_path / "models.yaml"
    rows = "".join(f"- {{name: m{number:04d}, size: 4Gi}}\n" for number in range(12))
    catalogue.write_text("models:\n" + rows)
    asked = ("--capacity", "host=16Gi", "--catalog", str(catalogue))
    refused = simulate(trace, *asked, "--seeds", "3")
    assert "seeds change nothing" in refused.stderr
    assert simulate(trace, *asked, "--processes", "1").exit_code == 0


def test_a_catalogue_that_says_what_is_not_understood_is_named(trace, tmp_path):
    catalogue = tmp_path / "models.yaml"
    catalogue.write_text("models: [{name: a, size: large}]\n")
    done = simulate(trace, "--capacity", "host=16Gi", "--catalog", str(catalogue))
    assert "models.0.size" in done.stderr
