"""The disk's book balances, whatever is booked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.agent_world import an_entry
from modelcache_agent.decide.ledger import Blob, Ledger, LedgerError
from modelcache_agent.decide.watermarks import Space
from modelcache_agent.decide.world import Flight, Held, Origin
from modelcache_agent.memory import RunningFetch, make_ledger
from modelcache_agent.tiers.disk import Survey

UIDS = [f"v{number}" for number in range(4)]
sizes = st.integers(0, 1000)
# Some blobs are of several contents.
blobs = st.frozensets(st.integers(0, 6).map(lambda number: Blob(f"b{number}", 7 * number)))
books = st.builds(
    Ledger,
    capacity_bytes=st.integers(0, 5000),
    versions=st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), blobs),
    partials=st.dictionaries(st.sampled_from(UIDS), sizes),
    reservations=st.dictionaries(st.sampled_from(UIDS), sizes),
    quarantined_bytes=sizes,
    pending_release_bytes=sizes,
)


@given(books)
def test_every_byte_is_in_one_column(book):
    columns = book.used_bytes + book.reserved_bytes + book.pending_release_bytes
    assert columns + book.available_bytes == book.capacity_bytes
    assert min(book.used_bytes, book.reserved_bytes, book.published_bytes) >= 0


@given(books, st.sampled_from(UIDS), sizes)
def test_a_promise_is_made_once_and_takes_exactly_what_is_missing(book, uid, size):
    needed = book.needed_bytes(uid, size)
    if uid in book.reservations or needed > max(0, book.available_bytes):
        with pytest.raises(LedgerError):
            book.reserve(uid, size)
        return
    after = book.reserve(uid, size)
    assert after.available_bytes == book.available_bytes - needed
    assert after.available_bytes >= 0 or needed == 0
    with pytest.raises(LedgerError, match="already"):
        after.reserve(uid, size)


@given(books, st.sampled_from(UIDS), sizes, st.integers(0, 1000))
def test_bytes_that_arrive_move_from_reserved_to_used_and_change_nothing_else(
    book, uid, size, arrived
):
    bare = replace(book, partials={k: v for k, v in book.partials.items() if k != uid})
    promised = replace(bare, reservations={**bare.reservations, uid: size})
    moved = replace(promised, partials={**bare.partials, uid: min(size, arrived)})
    assert moved.available_bytes == promised.available_bytes


@given(books, st.sets(st.sampled_from(["a", "b", "c", "d"])))
def test_what_leaves_frees_its_own_blobs_and_all_together_free_all(book, chosen):
    freed = book.freed_bytes(chosen)
    rest = replace(book, versions={k: v for k, v in book.versions.items() if k not in chosen})
    assert rest.available_bytes == book.available_bytes + freed
    assert book.freed_bytes(book.versions) == book.published_bytes
    assert all(book.freed_bytes({one}) <= freed for one in chosen)


def a_survey(held=(), **partials) -> Survey:
    return Survey(
        held=tuple(held),
        partials=partials,
        quarantined_bytes=0,
        quarantined=0,
        pending_release_bytes=0,
        space=Space(10_000, 10_000),
        seen_at=0.0,
        evicted=frozenset(),
        adopted={},
    )


@given(st.integers(1, 1000), st.integers(0, 1000))
def test_a_promise_is_released_once_by_publication_by_failure_or_by_a_restart(size, here):
    """The book is written anew each turn, so nothing can be released twice or forgotten."""
    entry = an_entry("v", size)
    here = min(here, size)
    running = {"v": RunningFetch(entry, Flight("v", entry.source_digest, size), size)}
    origin = Origin("v", entry.source_digest)
    held = [Held("sha256:v", frozenset({Blob("v", size)}), 0.0, (origin,))]
    under_way = make_ledger(a_survey(v=here), running, 2000)
    assert under_way.used_bytes + under_way.reserved_bytes == size
    published = make_ledger(a_survey(held), running, 2000)
    assert (published.used_bytes, published.reserved_bytes) == (size, 0), "its task lags behind"
    ended = make_ledger(a_survey(held), {}, 2000)
    assert ended.available_bytes == published.available_bytes
    restarted = make_ledger(a_survey(v=here), {}, 2000)
    assert (restarted.used_bytes, restarted.reserved_bytes) == (here, 0)
    assert restarted.reserve("v", size).available_bytes == under_way.available_bytes


claims = st.tuples(st.sets(st.sampled_from(["a", "b", "c", "d"])), st.sets(st.sampled_from(UIDS)))


@given(books, claims, claims)
def test_a_namespace_pays_in_full_whoever_else_wants_the_same(book, one, other):
    """Charges are of what is wanted, not of who wants it; the book has each byte once."""
    first, second = book.claimed_bytes(*one), book.claimed_bytes(*other)
    together = book.claimed_bytes(one[0] | other[0], one[1] | other[1])
    assert max(first, second) <= together <= first + second
    if one == other:
        assert first == second == together
    everything = book.claimed_bytes(book.versions, {*book.partials, *book.reservations})
    assert everything == book.published_bytes + sum(book.partials.values()) + book.reserved_bytes
    assert together <= everything


@given(books, claims)
def test_what_is_charged_for_contents_is_at_least_what_they_would_free(book, claim):
    digests = claim[0] & book.versions.keys()
    assert book.freed_bytes(digests) <= book.claimed_bytes(digests, ())
    assert book.claimed_bytes({"unheard"}, {"unheard"}) == 0


@given(books, st.sets(st.sampled_from(["a", "b", "c", "d"])))
def test_what_others_free_never_touches_what_is_pinned(book, pinned):
    pinned &= book.versions.keys()
    others = book.versions.keys() - pinned
    assert book.published_bytes - book.freed_bytes(others) == book.claimed_bytes(pinned, ())


@given(books, st.sampled_from(UIDS), sizes)
def test_a_promise_is_charged_before_its_first_byte_and_bytes_that_arrive_charge_no_more(
    book, uid, size
):
    bare = replace(
        book,
        partials={k: v for k, v in book.partials.items() if k != uid},
        reservations={k: v for k, v in book.reservations.items() if k != uid},
        capacity_bytes=10**6,
    )
    promised = bare.reserve(uid, size)
    assert promised.claimed_bytes((), {uid}) == size
    for arrived in (0, size // 2, size):
        moved = replace(promised, partials={**bare.partials, uid: arrived})
        assert moved.claimed_bytes((), {uid}) == size
