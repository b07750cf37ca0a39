"""What to read next, when to try again, and when a stream counts as stalled. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from modelcache_api.manifest import PIECE_BYTES

# A server may ask for any pause; a node that has bytes to fetch never sleeps longer than this.
MAX_RETRY_AFTER_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Part:
    """A run of whole pieces of one file, read by one request."""

    first_piece: int
    pieces: int

    def start(self) -> int:
        """Offset of the first byte."""
        return self.first_piece * PIECE_BYTES

    def end(self, size_bytes: int) -> int:
        """Offset after the last byte, in a file of `size_bytes`."""
        return min(size_bytes, (self.first_piece + self.pieces) * PIECE_BYTES)


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Full-jitter exponential back-off: uniform in [0, min(cap, base * 2**attempt)]."""

    base_seconds: float = 0.5
    """First ceiling. Half a second: a restarted store is usually back within a few."""

    cap_seconds: float = 30.0
    """Highest ceiling of the engine's own back-off; longer waits are the caller's."""


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """A stream is stalled if a window passes with less than the minimum rate."""

    window_seconds: float = 30.0
    """Long enough for a store that rehydrates a cold object before its first byte."""

    min_bytes_per_second: int = 16 * 1024
    """Far below any useful link; only a trickle or silence is slower."""


def count_pieces(size_bytes: int) -> int:
    """How many pieces a file of this size has; an empty file has none."""
    return -(-size_bytes // PIECE_BYTES)


def piece_length(size_bytes: int, piece: int) -> int:
    """Bytes in the piece with this index."""
    return min(PIECE_BYTES, size_bytes - piece * PIECE_BYTES)


def choose_part(
    states: bytes | bytearray, *, wanted: int, from_piece: int, max_pieces: int
) -> Part | None:
    """The next run of pieces whose state byte equals `wanted`, or None.

    Runs are taken in file order, so that the in-order digest never waits for a piece that nobody
    reads, and are at most `max_pieces` long.
    """
    first = states.find(wanted, from_piece)
    if first < 0:
        return None
    last = first + 1
    while last < len(states) and last - first < max_pieces and states[last] == wanted:
        last += 1
    return Part(first, last - first)


def backoff_seconds(attempt: int, jitter: float, policy: BackoffPolicy) -> float:
    """Pause before the retry that follows failure number `attempt` (0 = the first one).

    `jitter` is uniform in [0, 1); the caller draws it.
    """
    ceiling = min(policy.cap_seconds, policy.base_seconds * 2.0 ** min(attempt, 30))
    return ceiling * jitter


def is_stalled(elapsed_seconds: float, received_bytes: int, policy: StallPolicy) -> bool:
    """True if a full window passed and less than the minimum rate arrived in it."""
    if elapsed_seconds < policy.window_seconds:
        return False
    return received_bytes < policy.min_bytes_per_second * elapsed_seconds


def must_refresh(expires_at: float, now: float, margin_seconds: float) -> bool:
    """True if a signed URL would run out within the margin (both in Unix seconds)."""
    return expires_at - now < margin_seconds
