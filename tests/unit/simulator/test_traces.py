"""Traces as people have them, and what a node sees of one."""

from __future__ import annotations

import itertools

import pytest

from modelcache_simulator.errors import SimulationError
from modelcache_simulator.sessions import Attach, Release, follow_sessions
from modelcache_simulator.synthetic import Shape, make_requests
from modelcache_simulator.trace import Request, count_models, read_requests, write_requests

OURS = "time,model,seconds\n10,a,2\n1970-01-01T00:00:20Z,b,\n"
GENTD26 = (
    "gmt_create,exec_time_seconds,checkpoint_model_version_id\n"
    "1970-01-01 00:00:10,2.0,a\n"
    "1970-01-01 00:00:15,1.0,\n"
    "1970-01-01 00:00:20,,b\n"
)


@pytest.mark.parametrize("text", [OURS, GENTD26], ids=["ours", "GenTD26, a nameless one left out"])
def test_a_trace_of_each_kind_is_read(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    assert list(read_requests(path)) == [Request(10.0, "a", 2.0), Request(20.0, "b", 0.0)]
    assert count_models(read_requests(path)) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "of an empty file: the first line must name time and model", id="empty"),
        pytest.param("when,what\n", "has the columns when, what", id="other columns"),
        pytest.param("time,model\nsoon,a\n", "line 2: Invalid isoformat", id="no time"),
        pytest.param("time,model\n5\n", "line 2", id="a short line"),
        pytest.param("time,model\n5,\n", "line 2: no model", id="no model"),
        pytest.param("time,model\nnan,a\n", "line 2: it is earlier", id="not a number"),
        pytest.param("time,model\n5,a\n4,b\n", "line 3: it is earlier.*sort", id="out of order"),
        pytest.param("time,model,seconds\n5,a,-1\n", "line 2: .*duration", id="negative"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said_with_its_line(tmp_path, text, says):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(SimulationError, match=says):
        list(read_requests(path))


def test_a_trace_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SimulationError, match=r"cannot read the trace .*none\.csv"):
        list(read_requests(tmp_path / "none.csv"))


def test_an_attach_is_the_first_request_after_idleness():
    requests = [Request(0, "a", 10), Request(5, "a", 1), Request(70, "a", 1), Request(200, "a")]
    assert list(follow_sessions(requests, 60)) == [
        Attach(0, "a"),
        Release(131, "a"),
        Attach(200, "a"),
        Release(260, "a"),
    ]


def test_events_of_many_models_come_in_order_of_time():
    requests = make_requests(Shape(models=20, requests=2000, mean_gap_seconds=10), seed=1)
    events = list(follow_sessions(requests, 60))
    assert [event.at for event in events] == sorted(event.at for event in events)
    attached = set()
    for event in events:
        assert (event.model in attached) == isinstance(event, Release)
        attached ^= {event.model}
    assert not attached


def test_synthetic_traces_are_skewed_have_nights_and_repeat():
    shape = Shape(models=50, requests=20_000, zipf=1.0, diurnal=1.0)
    requests = list(make_requests(shape, seed=3))
    assert requests == list(make_requests(shape, seed=3))
    assert requests != list(make_requests(shape, seed=4))
    counts = count_models(iter(requests))
    assert counts["m0000"] > 5 * counts["m0020"]
    at_night = sum(request.at % 86_400 < 3600 for request in requests)
    at_noon = sum(43_200 <= request.at % 86_400 < 46_800 for request in requests)
    assert at_noon > 5 * at_night


def test_favourites_change_when_asked_to():
    shape = Shape(models=50, requests=4000, zipf=1.5, diurnal=0.0, shift_seconds=120_000)
    requests = list(make_requests(shape, seed=0))
    before, after = itertools.tee(requests)
    early = count_models(r for r in before if r.at < 120_000)
    late = count_models(r for r in after if r.at > 120_000)
    assert max(early, key=early.get) != max(late, key=late.get)


def test_a_shape_out_of_range_is_refused_by_name():
    with pytest.raises(SimulationError, match="out of range: zipf, diurnal"):
        next(make_requests(Shape(zipf=-1, diurnal=2), seed=0))


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "trace.csv"
    assert write_requests(path, make_requests(Shape(requests=50), seed=0)) == 50
    assert len(list(read_requests(path))) == 50
