"""`kubectl modelcache simulate` and `make-trace`, as a person calls them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fakes.played_log import PlayedLog
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
        *("--capacity", "gpu=20Gi,host=100Gi,disk=400Gi", "--capacity", "host=100Gi"),
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
    assert {"fragmentation" in row["figures"] for row in rows} == {True, False}
    for name in ("hit-rate", "load-seconds", "occupancy", "fragmentation"):
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


@pytest.fixture
def log(tmp_path):
    """An agent's log: one of two loads can be foreseen."""
    played = PlayedLog("a", "b", capacity=25)
    played.attach("a", 10.0)
    played.release("a", 11.0)
    played.attach("c", 20.0, waited=4.0)
    return played


def simulate_live(*arguments):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def test_a_live_log_is_replayed_and_its_waits_compared(log, tmp_path):
    path = log.save(tmp_path / "current.jsonl")
    done = simulate_live("--live", path)
    assert done.exit_code == 0
    assert done.stdout == (
        f"{path}: 1 decisions, 2 attaches: all decided alike\n"
        f"{path}: predicted from 2 arrivals alone: 1 loads, 4.00 load-seconds; measured: 1 loads, "
        "4.00 load-seconds (+0.0%)\n"
    )
    other = json.loads(log.lines[1]) | {"plan": "0" * 32}
    log.lines = [log.lines[0], json.dumps(other)]
    done = simulate_live("--live", log.save(tmp_path / "other.jsonl"))
    assert done.exit_code == 1
    assert "1 decided otherwise" in done.stdout
    assert "nobody arrived" in done.stdout


def test_a_live_log_is_a_trace_too_and_knows_its_sizes(log, tmp_path):
    path = log.save(tmp_path / "current.jsonl")
    done = simulate_live("--trace", path, "--capacity", "disk=25", "--processes", "1")
    assert done.exit_code == 0, done.output
    assert "drawn" not in done.output
    assert "belady" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give a --trace and at least one --capacity, or an agent's log by --live"),
        (("--live", "none.jsonl"), "cannot read the log none.jsonl"),
        (("--live", "x", "--capacity", "disk=1"), "leave out --trace and --capacity"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_one_line(arguments, says):
    done = simulate_live(*arguments)
    assert done.exit_code == 1
    assert says in done.stderr
    assert "Traceback" not in done.output
