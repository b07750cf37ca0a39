from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_api.quoted import quote


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("model.safetensors", "'model.safetensors'"),
        ("a\n\x1b[31m", r"'a\n\x1b[31m'"),
        ("\u202egnp.exe", r"'\u202egnp.exe'"),
        ("\udc80", r"'\udc80'"),
        ("x" * 100 + "middle" + "y" * 100, f"'{'x' * 80}...{'y' * 80}'"),
    ],
)
def test_hostile_names_are_shown_harmless_with_both_ends(text, shown):
    assert quote(text) == shown


@given(st.text(st.characters(exclude_categories=[]), max_size=5000))
def test_what_is_quoted_is_ascii_printable_and_bounded(text):
    quoted = quote(text)
    assert quoted.isascii()
    assert quoted.isprintable()
    assert len(quoted) <= 2 * 160 + 3
