from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from modelcache_api.retry_after import parse_retry_after

NOW = 1_800_000_000.0
LONGEST = 300.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        (" 7 ", 7),
        ("999999", LONGEST),
        (formatdate(NOW + 20, usegmt=True), 20),
        (formatdate(NOW + 20), 20),
        (formatdate(NOW - 20, usegmt=True), 0),
        (formatdate(NOW + 99999, usegmt=True), LONGEST),
        (None, None),
        ("", None),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("\u0661", None),
        ("9" * 100, None),
        ("Mon, 99 Foo 2026 99:99:99 GMT", None),
    ],
)
def test_both_forms_and_rubbish(value, seconds):
    assert parse_retry_after(value, NOW, longest=LONGEST) == seconds


@given(st.text(max_size=80))
@example("Mon, 01 Jan 99999999999 00:00:00 GMT")
@example("Mon, 01 Jan 2026 00:00:00 +99999999999999999999")
@example("Mon, 01 Jan 2026 00:00:00 +9999")
def test_no_text_breaks_it_or_asks_for_more_than_the_longest(text):
    seconds = parse_retry_after(text, NOW, longest=LONGEST)
    assert seconds is None or 0 <= seconds <= LONGEST
