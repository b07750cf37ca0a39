"""Which files that are here may be used without a read, and what a source must show first. Pure.

A source may state any sha256. Whoever does not hold a file does not know its bytes at places that
are chosen by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_api.manifest import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modelcache_api.manifest import ContentFile

# Smaller files are fetched like any other: that costs little more than the questions.
LEAST_BYTES: Final = PIECE_BYTES
# Who knows a share f of a file's bytes, as of the model it was tuned from, passes with f ** SPANS.
SPANS: Final = 16
SPAN_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [start, end) of a file."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class HeldFiles:
    """Files of a version whose bytes are here as another version's, by path.

    `known` are used as they are. `claimed` are used once the source has shown that it has them.
    """

    known: Mapping[str, ContentFile]
    claimed: Mapping[str, ContentFile]


def sort_held(held: Mapping[str, ContentFile], *, is_adopted: bool) -> HeldFiles:
    """What follows from where the sha256 of each held file comes from.

    `is_adopted`: from the version's own adopted content, so some node has read these bytes from its
    source. Else the source alone says so; small files are then neither known nor claimed.
    """
    if is_adopted:
        return HeldFiles(held, {})
    claimed = {path: file for path, file in held.items() if file.size_bytes >= LEAST_BYTES}
    return HeldFiles({}, claimed)


def choose_spans(size_bytes: int, draw: Callable[[int], int]) -> tuple[Span, ...]:
    """What the source of a claimed file is asked for, in file order.

    `draw(n)` is uniform in [0, n), and nobody else can foresee it.
    """
    starts = {draw(size_bytes - SPAN_BYTES + 1) for _ in range(SPANS)}
    return tuple(Span(start, start + SPAN_BYTES) for start in sorted(starts))
