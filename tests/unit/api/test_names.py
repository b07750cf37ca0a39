from __future__ import annotations

import re
from pathlib import Path

import pytest

from modelcache_api.cures import CURES, find_cure
from modelcache_api.names import Reason

REASONS_PAGE = Path(__file__).parents[3] / "docs" / "reasons.md"


def test_every_reason_has_a_heading_and_every_heading_a_reason():
    headings = re.findall(r"^### (\S+)$", REASONS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(Reason)


def test_every_reason_has_one_cure_and_its_section_ends_with_it():
    page = REASONS_PAGE.read_text(encoding="utf-8")
    sections = re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    told = {word: body.rstrip().rpartition("\n\nCure: ")[2] for word, body in sections}
    assert told == {reason.value: f"{CURES[reason]}." for reason in Reason}


@pytest.mark.parametrize(
    ("reason", "message", "of"),
    [
        pytest.param("AuthFailed", "403", Reason.AUTH_FAILED, id="its own"),
        pytest.param(
            "Degraded",
            "1 of 2 copies are verified; 1 failed, first on node n1: DiskPressure: 92 %",
            Reason.DISK_PRESSURE,
            id="of the reason that the message names",
        ),
        pytest.param("Degraded", "1 of 2 Cached", Reason.DEGRADED, id="not of what is well"),
    ],
)
def test_the_cure_is_that_of_the_innermost_cause(reason, message, of):
    assert find_cure(reason, message) == CURES[of]


def test_a_reason_of_a_newer_release_points_to_the_page():
    assert find_cure("Unheard") == "see docs/reasons.md"


@pytest.mark.parametrize("reason", list(Reason))
def test_reason_is_one_camel_case_word(reason):
    assert re.fullmatch(r"[A-Z][A-Za-z]{1,62}", reason)
