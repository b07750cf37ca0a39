"""The book balances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelcache_agent.decide.ledger import Blob, Ledger, LedgerError

SHARED = Blob("shared", 30)
EMPTY = Ledger(100)


def test_a_running_transfer_always_holds_its_full_size():
    book = EMPTY.reserve("a", 60)
    assert (book.used_bytes, book.reserved_bytes, book.available_bytes) == (0, 60, 40)
    book = replace(book, partials={"a": 25})
    assert (book.used_bytes, book.reserved_bytes, book.available_bytes) == (25, 35, 40)
    book = replace(book, reservations={})
    assert (book.used_bytes, book.reserved_bytes, book.available_bytes) == (25, 0, 75)


def test_shared_blobs_count_once():
    versions = {
        "v1": frozenset({SHARED, Blob("x", 5)}),
        "v2": frozenset({SHARED, Blob("y", 7)}),
    }
    book = Ledger(100, versions)
    assert book.used_bytes == 42
    assert book.freed_bytes(["v1"]) == 5
    assert book.freed_bytes(["v1", "v2"]) == 42


@pytest.mark.parametrize(
    "misuse",
    [
        pytest.param(lambda: EMPTY.reserve("a", 101), id="more than there is"),
        pytest.param(lambda: EMPTY.reserve("a", 1).reserve("a", 1), id="reserved twice"),
    ],
)
def test_misuse_is_a_bug(misuse):
    with pytest.raises(LedgerError):
        misuse()


def test_bytes_that_readers_hold_are_not_available():
    book = Ledger(100, pending_release_bytes=30, quarantined_bytes=20)
    assert book.available_bytes == 50
    assert book.used_bytes == 20
