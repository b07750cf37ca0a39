"""Whatever a source states and chance gives: what is used unseen, and what is asked for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from modelcache_agent.decide.possession import (
    LEAST_BYTES,
    SPAN_BYTES,
    SPANS,
    choose_spans,
    sort_held,
)
from modelcache_api.manifest import ContentFile

sizes = st.integers(0, 4 * LEAST_BYTES) | st.integers(LEAST_BYTES, 1 << 45)
held_files = st.dictionaries(st.text(min_size=1, max_size=8), sizes, max_size=8).map(
    lambda files: {path: ContentFile(path, size, "0" * 64) for path, size in files.items()}
)
# A share of [0, n) each; what is drawn beyond n - 1 is n - 1.
shares = st.lists(st.floats(0, 1), min_size=SPANS, max_size=SPANS)


@given(held_files, st.booleans())
def test_nothing_that_a_source_alone_states_is_known(held, is_adopted):
    found = sort_held(held, is_adopted=is_adopted)
    if is_adopted:
        assert (found.known, found.claimed) == (held, {})
    else:
        assert not found.known
        assert found.claimed.items() <= held.items()
        assert all(file.size_bytes >= LEAST_BYTES for file in found.claimed.values())
        left = held.keys() - found.claimed.keys()
        assert all(held[path].size_bytes < LEAST_BYTES for path in left)


@settings(deadline=None)
@given(st.integers(LEAST_BYTES, 1 << 45), shares)
def test_spans_lie_within_the_file_in_order_and_cost_less_than_a_fetch(size, given_shares):
    drawn = iter(given_shares)
    limits = []

    def draw(limit):
        limits.append(limit)
        return min(int(next(drawn) * limit), limit - 1)

    spans = choose_spans(size, draw)
    assert 1 <= len(spans) <= SPANS
    assert all(0 <= span.start < span.end <= size for span in spans)
    assert {span.end - span.start for span in spans} == {SPAN_BYTES}
    assert [span.start for span in spans] == sorted({span.start for span in spans})
    assert sum(span.end - span.start for span in spans) < size
    assert limits == [size - SPAN_BYTES + 1] * SPANS, "each may begin at any byte, whatever else"


@given(st.integers(LEAST_BYTES, 1 << 45), st.data())
def test_each_byte_may_be_asked_for(size, data):
    wanted = data.draw(st.integers(0, size - 1))
    start = min(wanted, size - SPAN_BYTES)
    (span,) = choose_spans(size, lambda _limit: start)
    assert span.start <= wanted < span.end
