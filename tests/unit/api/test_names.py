from __future__ import annotations

import re
from pathlib import Path

import pytest

from modelcache_api.names import Reason

REASONS_PAGE = Path(__file__).parents[3] / "docs" / "reasons.md"


def test_every_reason_has_a_heading_and_every_heading_a_reason():
    headings = re.findall(r"^### (\S+)$", REASONS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(Reason)


@pytest.mark.parametrize("reason", list(Reason))
def test_reason_is_one_camel_case_word(reason):
    assert re.fullmatch(r"[A-Z][A-Za-z]{1,62}", reason)
