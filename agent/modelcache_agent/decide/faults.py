"""What the disk refused to do, and when it is tried again. Pure.

Faults belong to actions, setbacks to entries: an action that fails costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from modelcache_agent.decide.actions import (
    Action,
    DropPartial,
    EntryView,
    Evict,
    Isolate,
    Verify,
)
from modelcache_agent.decide.matching import Match
from modelcache_agent.decide.pauses import Pause, lengthen
from modelcache_api.names import EntryState, Reason

# Some actions read a whole model: not again and again on a disk that just failed.
_FIRST_SECONDS: Final = 10.0
_LONGEST_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an action failed last, and its pause."""

    message: str
    pause: Pause


def make_fault(previous: Fault | None, message: str, *, now: float, jitter: float) -> Fault:
    """The fault after one more failure of the same action."""
    pause = lengthen(
        Pause() if previous is None else previous.pause,
        now=now,
        jitter=jitter,
        retry_after=None,
        first_seconds=_FIRST_SECONDS,
        longest_seconds=_LONGEST_SECONDS,
    )
    return Fault(message, pause)


def tell_faults(
    views: Iterable[EntryView],
    actions: Iterable[Action],
    matches: Mapping[str, Match],
    faults: Mapping[Action, Fault],
) -> tuple[EntryView, ...]:
    """The views, with a StoreError where an action for the entry fails."""
    told: dict[str, tuple[Action, Fault]] = {}
    for action in actions:
        if action in faults:
            told |= dict.fromkeys(_concerned(action, matches), (action, faults[action]))
    return tuple(_tell(view, *told[view.uid]) if view.uid in told else view for view in views)


def _concerned(action: Action, matches: Mapping[str, Match]) -> tuple[str, ...]:
    match action:
        case Verify(digest):
            return tuple(uid for uid, match in matches.items() if match.held.digest == digest)
        case Isolate(blob):
            return tuple(
                uid
                for uid, match in matches.items()
                if any(damage.blob == blob for damage in match.held.damage)
            )
        case Evict(_, uids):
            return uids
        case DropPartial(uid):
            return (uid,)
        case _:
            return ()


def _tell(view: EntryView, action: Action, fault: Fault) -> EntryView:
    state = EntryState.FAILED if isinstance(action, Verify) else view.state
    return replace(view, state=state, reason=Reason.STORE_ERROR, message=fault.message)
