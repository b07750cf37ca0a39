"""What kubectl is told when TAB is pressed, and the reference of commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from modelcache_cli.completion import complete
from modelcache_cli.helpgen import main, render_help
from modelcache_testbed.programs import kubectl

PAGE = Path(__file__).parents[3] / "docs/cli.md"


def names(*words):
    """The candidates without what they stand for; the last line is kubectl's number."""
    *lines, directive = complete(words).splitlines()
    return [line.partition("\t")[0] for line in lines], directive


def test_commands_are_completed_with_what_they_do():
    assert complete(["st"]).startswith("status\tShow nodes, tiers and ModelCaches")
    assert names("to") == (["top"], ":4")
    assert "simulate" in names()[0]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["top", "n"], ["nodes"]),
        (["top", "-n", "search", "mo"], ["models"]),
        (["top", "nodes", ""], []),
        (["top", "-o", "j"], ["json"]),
        (["top", "--output", ""], ["table", "wide", "json", "yaml"]),
        (["affinity", "--track", "c"], ["canary"]),
        (["why", "m"], []),
    ],
)
def test_fixed_values_are_completed_and_names_of_objects_are_not(words, found):
    assert names(*words) == (found, ":4")


def test_options_are_completed_by_their_long_names():
    found, directive = names("status", "--")
    assert {"--namespace", "--all-namespaces", "--output", "--help"} <= set(found)
    assert directive == ":4"


def test_where_a_file_is_asked_for_the_shell_completes_it():
    assert names("inject", "-f", "") == ([], ":0")
    assert names("status", "--kubeconfig", "") == ([], ":0")


def test_kubectl_itself_finds_the_plugins_completion():
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        [str(kubectl()), "__complete", "modelcache", "top", "n"],
        env=os.environ | {"PATH": programs},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines() == ["nodes", ":4"]


def test_the_reference_has_each_command_and_is_up_to_date():
    assert main(["--check", str(PAGE)]) == 0
    headings = [line for line in render_help().splitlines() if line.startswith("### ")]
    assert "### kubectl modelcache top" in headings
    assert len(headings) == len(set(headings))


def test_a_stale_reference_is_found_and_made_anew(tmp_path, capsys):
    page = tmp_path / "cli.md"
    page.write_text(PAGE.read_text().replace("--all-namespaces", "--everywhere"))
    assert main(["--check", str(page)]) == 1
    assert "run `make gen`" in capsys.readouterr().err
    assert main(["--write", str(page)]) == 0
    assert page.read_text() == PAGE.read_text().replace("`--everywhere`", "`--all-namespaces`")
