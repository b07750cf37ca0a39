"""How one certificate authority follows another without a moment in which trust is missing.

Both are trusted for a time before the new one signs, and for a time after. Agents see a new bundle
some minutes after it was published, and replicas see a new authority some minutes after it was
kept; the overlap is longer than either.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Step(StrEnum):
    """What is to be done next. Also the word in the log."""

    STAY = "stay"
    ANNOUNCE = "announce"  # make a new authority, and let it be trusted before it signs anything
    SWITCH = "switch"  # let it sign
    RETIRE = "retire"  # trust the old one no more


@dataclass(frozen=True, slots=True)
class RotationState:
    """What is kept and published. At most one of the two certificates beside the current is there.

    `published_for` is how long exactly this bundle has been published without a break.
    """

    has_following: bool
    has_previous: bool
    published_for: timedelta
    is_wanted: bool


def choose_step(state: RotationState, overlap: timedelta) -> Step:
    """One step at a time, each only after the last one has been seen by everybody."""
    if not state.has_following and not state.has_previous:
        return Step.ANNOUNCE if state.is_wanted else Step.STAY
    if state.published_for < overlap:
        return Step.STAY
    return Step.SWITCH if state.has_following else Step.RETIRE
