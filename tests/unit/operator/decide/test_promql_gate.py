"""What Prometheus answers, and what that means for a canary."""

from __future__ import annotations

import json

import pytest

from builders import make_cache
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.rollout import CanarySpec, GateSpec, RolloutSpec, RolloutStatus
from modelcache_operator.decide.promql_gate import (
    Measurement,
    find_asked_gate,
    judge_gate,
    read_answer,
)
from modelcache_operator.decide.rollout import GateOpinion, Trouble

GATE = GateSpec(query="errors", comparison="Below", threshold="0.01", interval="30s")


def said(kind, result):
    body = {"status": "success", "data": {"resultType": kind, "result": result}}
    return json.dumps(body).encode()


def sample(text):
    return {"metric": {"job": "embed"}, "value": [1_700_000_000.123, text]}


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (said("scalar", [1, "0.25"]), 0.25),
        (said("vector", [sample("1e-05")]), 1e-05),
        (said("vector", [sample("+Inf")]), float("inf")),
    ],
    ids=["a scalar", "one sample", "infinity"],
)
def test_a_scalar_or_a_vector_of_one_sample_is_a_number(body, value):
    assert read_answer(200, body) == value


BAD_QUERY = b'{"status": "error", "errorType": "bad_data", "error": "parse error at char 3"}'


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        pytest.param(200, said("vector", []), Reason.GATE_NO_DATA, id="no sample"),
        pytest.param(200, said("vector", [sample("NaN")]), Reason.GATE_NO_DATA, id="0/0"),
        pytest.param(
            200, said("vector", [sample("1")] * 2), Reason.GATE_QUERY_INVALID, id="two samples"
        ),
        pytest.param(200, said("matrix", []), Reason.GATE_QUERY_INVALID, id="a matrix"),
        pytest.param(200, said("string", [1, "x"]), Reason.GATE_QUERY_INVALID, id="a string"),
        pytest.param(
            200, said("vector", [{"histogram": []}]), Reason.GATE_QUERY_INVALID, id="a histogram"
        ),
        pytest.param(200, said("scalar", [1, "one"]), Reason.GATE_QUERY_INVALID, id="no number"),
        pytest.param(200, said("scalar", [1, 2]), Reason.GATE_QUERY_INVALID, id="not in quotes"),
        pytest.param(400, BAD_QUERY, Reason.GATE_QUERY_INVALID, id="no PromQL"),
        pytest.param(422, BAD_QUERY, Reason.GATE_QUERY_INVALID, id="cannot be computed"),
        pytest.param(400, b"<html>", Reason.GATE_UNREACHABLE, id="a proxy's page"),
        pytest.param(503, BAD_QUERY, Reason.GATE_UNREACHABLE, id="overloaded"),
        pytest.param(401, b"", Reason.GATE_UNREACHABLE, id="no token"),
        pytest.param(302, b"", Reason.GATE_UNREACHABLE, id="a redirect"),
        pytest.param(200, b"[" * 50_000, Reason.GATE_UNREACHABLE, id="nested without end"),
        pytest.param(200, b"null", Reason.GATE_UNREACHABLE, id="null"),
        pytest.param(200, b'{"status": "success"}', Reason.GATE_UNREACHABLE, id="no data field"),
    ],
)
def test_whatever_else_is_said_is_no_number_and_has_one_reason(status, body, reason):
    answer = read_answer(status, body)
    assert isinstance(answer, Trouble)
    assert answer.reason is reason
    assert answer.message


@pytest.mark.parametrize(
    ("comparison", "holding"),
    [
        ("Below", {"lower"}),
        ("AtMost", {"lower", "equal"}),
        ("AtLeast", {"equal", "higher"}),
        ("Above", {"higher"}),
    ],
)
def test_each_comparison(comparison, holding):
    gate = GATE.model_copy(update={"comparison": comparison})
    for word, value in (("lower", 0.009), ("equal", 0.01), ("higher", 0.011)):
        opinion = judge_gate(gate, Measurement(gate, value, 0.0))
        if word in holding:
            assert opinion == GateOpinion()
        else:
            assert opinion.wait is None
            assert opinion.failure.reason is Reason.GATE_FAILED
            assert f"{value:g}" in opinion.failure.message


OTHER = GATE.model_copy(update={"query": "latency"})
DOWN = Trouble(Reason.GATE_UNREACHABLE, "no answer within 10 s")


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        pytest.param(None, Reason.GATE_NO_DATA, id="never asked"),
        pytest.param(Measurement(OTHER, 0.0, 1.0), Reason.GATE_NO_DATA, id="of another query"),
        pytest.param(Measurement(GATE, 0.0, 91.0), Reason.GATE_NO_DATA, id="a number of the past"),
        pytest.param(Measurement(GATE, DOWN, 1.0), Reason.GATE_UNREACHABLE, id="server away"),
    ],
)
def test_no_number_is_no_failure_and_lets_nothing_up(measured, reason):
    opinion = judge_gate(GATE, measured)
    assert opinion.failure is None
    assert opinion.wait.reason is reason


def test_a_number_that_is_young_enough_counts():
    assert judge_gate(GATE, Measurement(GATE, 0.0, 89.0)) == GateOpinion()
    assert judge_gate(None, None) == GateOpinion()


def test_a_gate_is_asked_while_a_canary_is_to_take_traffic():
    spec = make_cache().spec.model_copy(update={"rollout": RolloutSpec(gate=GATE)})
    tried = spec.model_copy(update={"canary": CanarySpec(model_version="m2", weight=5)})
    dark = spec.model_copy(update={"canary": CanarySpec(model_version="m2", weight=0)})
    times = {"started_at": "2026-01-01T00:00:00Z", "canary_uid": "v2", "model_version": "m2"}
    running = RolloutStatus(aim=5, **times)
    ended = RolloutStatus(aim=5, ended="GateFailed", **times)
    assert find_asked_gate(spec, None) is find_asked_gate(dark, None) is None
    assert find_asked_gate(tried, None) == find_asked_gate(tried, running) == GATE
    assert find_asked_gate(tried, ended) is None
    assert find_asked_gate(tried, ended.model_copy(update={"aim": 4})) == GATE
