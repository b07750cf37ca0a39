from __future__ import annotations

from datetime import UTC, datetime

import pytest

from modelcache_operator.sources.store_answer import read_retry_after

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 30.0),
        (" 30 ", 30.0),
        ("0", 1.0),
        ("99999999999999", 3600.0),
        ("Sun, 29 Nov 2026 12:01:00 GMT", 60.0),
        ("Sun, 29 Nov 2026 11:00:00 GMT", 1.0),
        ("Sun, 29 Nov 2026 12:00:05 -0000", 5.0),
        ("soon", 9.0),
        ("-5", 9.0),
        ("", 9.0),
        ("٣", 9.0),
        ("Mon, 01 Jan 2026 00:00:00 +99999999999999999999", 9.0),
    ],
)
def test_both_forms_of_retry_after(value, seconds):
    assert read_retry_after({"retry-after": value}, NOW, default=9.0) == seconds
