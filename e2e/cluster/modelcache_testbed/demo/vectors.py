"""Comparing embeddings."""

from __future__ import annotations

from collections.abc import Sequence


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference in one place."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))
