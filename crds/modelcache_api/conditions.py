"""Conditions after kstatus: computed whole, moved only when the status flips."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from modelcache_api.limits import MAX_MESSAGE_LENGTH
from modelcache_api.names import Condition, Reason
from modelcache_api.v1alpha1.base import ConditionStatus


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition as decided: what, why in one word, and one sentence."""

    type: Condition
    status: bool | None
    reason: Reason
    message: str = ""


def merge_conditions(
    previous: Sequence[ConditionStatus],
    verdicts: Iterable[Verdict],
    *,
    generation: int | None,
    now: datetime,
) -> tuple[ConditionStatus, ...]:
    """The verdicts as conditions; `lastTransitionTime` is kept where the status did not flip.

    `generation` is None for facts that do not depend on the spec; kubectl would otherwise take them
    for stale after each change of it.
    """
    before = {condition.type: condition for condition in previous}
    merged = []
    for verdict in verdicts:
        status = {True: "True", False: "False", None: "Unknown"}[verdict.status]
        old = before.get(verdict.type)
        kept = old is not None and old.status == status
        merged.append(
            ConditionStatus(
                type=verdict.type,
                status=status,
                reason=verdict.reason,
                message=truncate(verdict.message),
                observed_generation=generation,
                last_transition_time=old.last_transition_time if kept and old else now,
            )
        )
    return tuple(merged)


def truncate(message: str, limit: int = MAX_MESSAGE_LENGTH) -> str:
    """The message within the limit of the API, cut with an ellipsis; control characters quoted."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in message)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
