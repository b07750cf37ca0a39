"""What a gate's query has answered, and what that means for a canary. Pure."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from modelcache_api.durations import parse_duration
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.model_cache import ModelCacheSpec
from modelcache_api.v1alpha1.rollout import Comparison, GateSpec, RolloutStatus
from modelcache_operator.decide.rollout import GateOpinion, Trouble

# Older than so many intervals, a number says nothing of now.
_STALE_INTERVALS: Final = 3.0
# Statuses tell whole seconds of when the weight moved.
_TOLD_SECONDS: Final = 1.0
_MAX_TOLD: Final = 200
_QUERY_REFUSED: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_HOLDS: Final[Mapping[Comparison, tuple[str, Callable[[float, float], bool]]]] = {
    Comparison.BELOW: ("below", operator.lt),
    Comparison.AT_MOST: ("at most", operator.le),
    Comparison.AT_LEAST: ("at least", operator.ge),
    Comparison.ABOVE: ("above", operator.gt),
}


Answer = float | Trouble
"""A number that is one, or why there is none."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The last answer to a gate's query. `age` in seconds, by a clock that never goes back."""

    gate: GateSpec
    answer: Answer
    age: float


NOT_CONFIGURED: Final = Trouble(
    Reason.GATE_NOT_CONFIGURED, "the operator has no Prometheus server to ask"
)


def find_asked_gate(spec: ModelCacheSpec, stored: RolloutStatus | None) -> GateSpec | None:
    """The gate whose query is to be asked now and then: while a canary is to take traffic."""
    gate, canary = spec.rollout.gate if spec.rollout else None, spec.canary
    if gate is None or canary is None or not canary.weight:
        return None
    is_same = stored is not None and (stored.model_version, stored.aim) == (
        canary.model_version,
        canary.weight,
    )
    return None if is_same and stored is not None and stored.ended is not None else gate


def judge_gate(
    gate: GateSpec | None, measured: Measurement | None, since_move: float | None = None
) -> GateOpinion:
    """A wrong number is a failure of the canary; no number is none, and yet nothing goes up.

    `since_move`: seconds since the weight last moved, None if it never did.
    """
    if gate is None:
        return GateOpinion()
    is_old = (
        measured is not None
        and since_move is not None
        and measured.age > since_move - _TOLD_SECONDS
    )
    value = _find_number(gate, measured)
    if isinstance(value, Trouble):
        return GateOpinion(wait=value, is_old=is_old)
    word, holds = _HOLDS[gate.comparison]
    if holds(value, float(gate.threshold)):
        return GateOpinion(is_old=is_old)
    message = f"the gate's query gives {value:.4g}, which is not {word} {gate.threshold}"
    return GateOpinion(failure=Trouble(Reason.GATE_FAILED, message), is_old=is_old)


def read_answer(status: int, body: bytes) -> Answer:
    """What Prometheus' HTTP API says to an instant query. Hostile bodies are no number."""
    found = _parse(body)
    if status in _QUERY_REFUSED and found.get("status") == "error":
        told = str(found.get("error", ""))[:_MAX_TOLD]
        return Trouble(Reason.GATE_QUERY_INVALID, f"Prometheus refuses the query: {told}")
    if status != HTTPStatus.OK:
        return Trouble(Reason.GATE_UNREACHABLE, f"Prometheus answers {status}")
    data = found.get("data")
    if found.get("status") != "success" or not isinstance(data, dict):
        message = "the answer is not one of Prometheus' HTTP API"
        return Trouble(Reason.GATE_UNREACHABLE, message)
    return _read_result(data.get("resultType"), data.get("result"))


def _read_result(kind: object, result: object) -> Answer:
    if kind == "scalar":
        return _read_sample(result)
    if kind != "vector" or not isinstance(result, list):
        message = f"the query gives a {str(kind)[:20]}, not a scalar or a vector"
        return Trouble(Reason.GATE_QUERY_INVALID, message)
    if not result:
        return Trouble(Reason.GATE_NO_DATA, "the gate's query gives no sample")
    if len(result) > 1:
        message = f"the query gives {len(result)} samples: aggregate them to one"
        return Trouble(Reason.GATE_QUERY_INVALID, message)
    return _read_sample(result[0].get("value") if isinstance(result[0], dict) else None)


def _read_sample(sample: object) -> Answer:
    """Time and number, the number in quotes."""
    value = None
    match sample:
        case [_, str(text)]:
            with suppress(ValueError):
                value = float(text)
    if value is None:
        return Trouble(Reason.GATE_QUERY_INVALID, "the query's sample is not a number")
    if math.isnan(value):
        return Trouble(Reason.GATE_NO_DATA, "the gate's query gives NaN")
    return value


def _parse(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _find_number(gate: GateSpec, measured: Measurement | None) -> Answer:
    """The number that holds now, or why there is none."""
    if measured is None or measured.gate != gate:
        return Trouble(Reason.GATE_NO_DATA, "the gate's query has not been answered yet")
    if measured.age > _STALE_INTERVALS * parse_duration(gate.interval):
        return Trouble(Reason.GATE_NO_DATA, "the last answer to the gate's query is too old")
    return measured.answer
