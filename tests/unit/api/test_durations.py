from __future__ import annotations

import pytest

from modelcache_api.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("90m", 5400), ("24h", 86_400), ("720h", 2_592_000)]
)
def test_a_duration_is_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "24", "h", "1d", "-1h", "1h30m", " 1h", "1h\n"])
def test_anything_else_is_refused_with_the_cure(text):
    with pytest.raises(ValueError, match="write a whole number of s, m or h"):
        parse_duration(text)
