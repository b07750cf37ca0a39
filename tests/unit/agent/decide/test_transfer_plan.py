from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_agent.decide.transfer_plan import (
    BackoffPolicy,
    Part,
    StallPolicy,
    backoff_seconds,
    choose_part,
    count_pieces,
    is_stalled,
    must_refresh,
    piece_length,
)
from modelcache_api.manifest import PIECE_BYTES

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("size", "lengths"),
    [
        (0, []),
        (1, [1]),
        (PIECE_BYTES - 1, [PIECE_BYTES - 1]),
        (PIECE_BYTES, [PIECE_BYTES]),
        (PIECE_BYTES + 1, [PIECE_BYTES, 1]),
        (2 * PIECE_BYTES + 17, [PIECE_BYTES, PIECE_BYTES, 17]),
    ],
)
def test_C29_pieces_cover_any_size(size, lengths):
    assert [piece_length(size, piece) for piece in range(count_pieces(size))] == lengths


@given(st.binary(max_size=40).map(lambda raw: bytes(byte % 3 for byte in raw)), st.integers(1, 5))
def test_parts_taken_one_after_the_other_are_all_missing_pieces_in_order(states, max_pieces):
    taken, position = [], 0
    while (
        part := choose_part(states, wanted=0, from_piece=position, max_pieces=max_pieces)
    ) is not None:
        assert part.pieces <= max_pieces
        taken += range(part.first_piece, part.first_piece + part.pieces)
        position = part.first_piece + part.pieces
    assert taken == [piece for piece, state in enumerate(states) if state == 0]


def test_part_knows_its_bytes():
    part = Part(1, 2)
    assert part.start() == PIECE_BYTES
    assert part.end(10 * PIECE_BYTES) == 3 * PIECE_BYTES
    assert part.end(2 * PIECE_BYTES + 5) == 2 * PIECE_BYTES + 5


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_has_full_jitter_under_a_growing_and_capped_ceiling(attempt, jitter):
    policy = BackoffPolicy(base_seconds=0.5, cap_seconds=30)
    pause = backoff_seconds(attempt, jitter, policy)
    assert 0 <= pause <= min(30, 0.5 * 2.0 ** min(attempt, 100))
    assert backoff_seconds(attempt, 0, policy) == 0
    assert backoff_seconds(attempt + 1, jitter, policy) >= pause


@pytest.mark.parametrize(
    ("elapsed", "received", "stalled"),
    [
        pytest.param(29.9, 0, False, id="the window is not over"),
        pytest.param(30, 0, True, id="silence"),
        pytest.param(30, 30 * 1000 - 1, True, id="a trickle"),
        pytest.param(30, 30 * 1000, False, id="the minimum"),
        pytest.param(60, 30 * 1000, True, id="half of it"),
    ],
)
def test_stall_is_a_rate_over_a_window(elapsed, received, stalled):
    policy = StallPolicy(window_seconds=30, min_bytes_per_second=1000)
    assert is_stalled(elapsed, received, policy) is stalled


def test_urls_are_renewed_within_the_margin():
    assert not must_refresh(NOW + 61, NOW, 60)
    assert must_refresh(NOW + 59, NOW, 60)
    assert must_refresh(NOW - 1, NOW, 60)
