"""Whose bytes came from where; no secret and no endless series among it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_agent.fetch.egress import OTHER, EgressBook, name_source

NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("url", "source"),
    [
        (
            "https://models.s3.eu-west-1.amazonaws.com/llama/a?X-Amz-Signature=s",
            "https://models.s3.eu-west-1.amazonaws.com",
        ),
        ("https://S3.example:9000/bucket/key", "https://s3.example:9000"),
        ("https://s3.example:443/bucket/key", "https://s3.example"),
        ("http://user:secret@minio/key", "http://minio"),
        ("http://[2001:DB8::1]:8333/key", "http://[2001:db8::1]:8333"),
        ("https:///key", OTHER),
        ("ftp://host/key", OTHER),
        ("https://host:port/key", OTHER),
        ('https://ho"st/key', OTHER),
        ("https://" + "a" * 300 + "/key", OTHER),
    ],
)
def test_a_source_is_a_server_and_nothing_else_of_the_url(url, source):
    assert name_source(url) == source


@given(st.text())
def test_no_url_breaks_the_count(url):
    source = name_source(url)
    assert len(source) < 300
    assert "@" not in source


def test_C44_totals_go_with_the_last_entry_and_never_shrink_before():
    book = EgressBook()
    book.add("a", "team", "https://s3", 5)
    book.add("b", "team", "https://s3", 7)
    book.add("b", "team", "https://mirror", 1)
    book.keep(frozenset({"a"}), NONE)
    assert book.snapshot() == {("team", "https://s3"): 12}
    book.keep(NONE, NONE)
    assert book.snapshot() == {}
    book.add("a", "team", "https://s3", 3)
    assert book.snapshot() == {("team", "https://s3"): 3}


def test_C44_series_are_bounded_and_no_byte_is_lost():
    book = EgressBook()
    for number in range(5000):
        book.add("a", "team", f"https://{number}", 2)
    assert len(book.snapshot()) <= 257
    assert sum(book.snapshot().values()) == 10000
