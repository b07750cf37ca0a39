from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_api.quantities import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        (" 2Ti ", 2 * 2**40),
        ("0.1", 1),
        ("1E", 10**18),
        ("7Ei", 7 * 2**60),
    ],
)
def test_parse(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "Gi", "-1", "1e3", "1 Gi", "1KB", "1Kib", "0x10", "\u0661", "1\n2"]
)
def test_what_is_no_quantity_is_refused_with_the_cure(text):
    with pytest.raises(ValueError, match="write for example 500Gi"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1Ki"),
        (1024, "1Ki"),
        (1536, "1.5Ki"),
        (91 * 2**20, "91Mi"),
        (10 * 2**20, "10Mi"),
        (1023 * 2**20, "1Gi"),
        (2**70, "1024Ei"),
    ],
)
def test_format(size, text):
    assert format_bytes(size) == text


@given(st.integers(0, 2**63 - 1))
def test_what_is_shown_is_short_and_close(size):
    text = format_bytes(size)
    assert len(text) <= 6
    assert abs(parse_bytes(text) - size) <= max(1, size // 18)


@given(st.integers(0, 2**63 - 1))
def test_a_plain_number_is_exact(size):
    assert parse_bytes(str(size)) == size
