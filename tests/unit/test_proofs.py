"""tests/README.md says what is proved where, and nothing that is not so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "README.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
CASES = {f"C{number:02}" for number in (*range(1, 24), 62)}
CASES_OF_CARDS = {"C63", "C64", "C66"}


def read_table(heading: str) -> list[list[str]]:
    """The cells of each row of the table under the heading, without its head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ROWS = read_table("Cases")
ROWS_OF_CARDS = read_table("Cases of cards")


@pytest.mark.parametrize(
    ("rows", "cases"),
    [
        pytest.param(ROWS, CASES, id="the sources"),
        pytest.param(ROWS_OF_CARDS, CASES_OF_CARDS, id="cards"),
    ],
)
def test_every_case_has_a_row_and_every_row_says_something_in_each_column(rows, cases):
    assert {row[0] for row in rows} == cases
    assert len(rows) == len(cases)
    for row in rows:
        assert len(row) == 6
        assert all(row), row[0]


@pytest.mark.parametrize("row", [*ROWS, *ROWS_OF_CARDS], ids=lambda row: row[0])
def test_each_file_that_is_named_bears_the_id_of_the_case(row):
    case, files = row[0], [path for cell in row[2:] for path, _ in NAMED.findall(cell)]
    bears = re.compile(rf'def test_\w*{case}(?!\d)|id="[^"]*{case}(?!\d)')
    assert files, "a case that is proved nowhere"
    for file in files:
        assert bears.search((TESTS / file).read_text(encoding="utf-8")), file


def test_each_test_that_is_named_exists():
    named = [found for row in read_table("Under fire") for found in NAMED.findall("|".join(row))]
    assert len(named) > 80
    for file, test in named:
        text = (TESTS / file).read_text(encoding="utf-8")
        assert re.search(rf"def {test}\(", text), f"{file}::{test}"


ROOM = read_table("Room, tier by tier")


def test_every_case_of_room_says_something_of_every_tier():
    assert [row[0] for row in ROOM] == ["C16", "C54", "C60"]
    assert all(len(row) == 6 and all(row) for row in ROOM)


@pytest.mark.parametrize("row", ROOM, ids=lambda row: row[0])
def test_each_file_of_a_tier_bears_the_id_of_the_case(row):
    test_each_file_that_is_named_bears_the_id_of_the_case(row)
