"""A piece is put together of the right bytes of other files, or not at all."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from modelcache_agent.decide.cut_plan import Literal, plan_reads
from modelcache_agent.decide.shared_plan import Copy, plan_pieces
from modelcache_agent.decide.transfer_plan import count_pieces, piece_length
from modelcache_api.cut import Cut, join_ranges
from modelcache_api.manifest import PIECE_BYTES, SourceFile
from modelcache_api.wire import SharedBytes

WHOLE = 8 * PIECE_BYTES
EDGES = st.lists(
    st.one_of(st.integers(0, WHOLE), st.sampled_from(range(0, WHOLE + 1, PIECE_BYTES // 2))),
    min_size=2,
    max_size=8,
    unique=True,
).map(sorted)
RANGES = EDGES.map(lambda edges: tuple(zip(edges[::2], edges[1::2], strict=False)))


def shared_of(skip, ranges):
    size = skip + sum(end - start for start, end in ranges)
    return SharedBytes(sha256="a" * 64, size_bytes=size, skip=skip, ranges=ranges)


SHARED = st.builds(shared_of, st.integers(0, 99), RANGES)


def to_source(shared, copy):
    """Which bytes of the source's file a copy takes."""
    position, left, found = shared[copy.source].skip, copy.length, []
    for start, end in shared[copy.source].ranges:
        following = position + end - start
        if position <= copy.offset < following and left:
            assert copy.offset + copy.length <= following, "of one range"
            begin = start + copy.offset - position
            found.append((begin, begin + copy.length))
            left = 0
        position = following
    return found[0]


@given(RANGES, st.binary(max_size=9), st.lists(SHARED, max_size=3))
@example(((0, WHOLE),), b"", [shared_of(0, ((0, WHOLE),))])
def test_each_planned_piece_is_all_of_it_and_nothing_else(ranges, literal, shared):
    cut = Cut(WHOLE, literal, ranges)
    file = SourceFile("m.safetensors", cut.size_bytes, '"e"', cut=cut)
    planned = plan_pieces(file, shared)
    for piece in range(count_pieces(file.size_bytes)):
        start = piece * PIECE_BYTES
        steps = plan_reads(cut, start, start + piece_length(file.size_bytes, piece))
        texts = b"".join(step.data for step in steps if isinstance(step, Literal))
        wanted = join_ranges([r for s in steps if not isinstance(s, Literal) for r in s.kept])
        if piece not in planned:
            assert not wanted or any(not is_held(span, shared) for span in wanted)
            continue
        parts = planned[piece]
        assert b"".join(part for part in parts if isinstance(part, bytes)) == texts
        copies = [to_source(shared, part) for part in parts if isinstance(part, Copy)]
        assert join_ranges(copies) == wanted


def is_held(span, shared):
    """True if every byte of the span is in one of the files."""
    position = span[0]
    while position < span[1]:
        ends = [end for one in shared for start, end in one.ranges if start <= position < end]
        if not ends:
            return False
        position = max(ends)
    return True
