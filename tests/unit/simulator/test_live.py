"""An agent's log: what its arrivals let one expect, and its requests as a trace."""

from __future__ import annotations

import pytest

from fakes.agent_world import digest_of
from fakes.played_log import PlayedLog
from modelcache_agent.decide.history import LoadCost
from modelcache_agent.inputs.records import read_records
from modelcache_simulator.agent_log import Arrival, list_requests, read_log
from modelcache_simulator.errors import SimulationError
from modelcache_simulator.live import fit_cost, list_loads, predict


def predicted(log):
    return predict(tuple(read_records(log.lines)))


def test_what_is_held_waits_for_nothing_and_what_is_not_for_one_load():
    log = PlayedLog("a", "b", capacity=25)
    log.attach("a", 10.0)
    log.release("a", 11.0)
    log.attach("c", 20.0, waited=4.0)
    log.attach("c", 21.0, waited=3.0)
    log.release("c", 30.0)
    log.attach("b", 40.0, waited=4.0)
    found = predicted(log)
    assert (found.attaches, found.predicted_loads, found.measured_loads) == (4, 2, 2)
    # "b" was used least of late, so it made way for "c", and "a" then for "b".
    assert found.measured_seconds == found.predicted_seconds == 11.0
    assert found.error == 0.0


def test_whoever_is_attached_keeps_its_place_in_the_prediction_too():
    log = PlayedLog("a", "b", capacity=25, mounted=["b"])
    log.attach("a", 10.0)
    log.release("a", 11.0)
    log.attach("c", 20.0, waited=4.0)
    log.release("c", 30.0)
    log.attach("a", 40.0, waited=4.0)
    log.attach("b", 50.0)
    assert predicted(log).predicted_loads == 2


def test_of_those_who_arrive_at_once_nobody_makes_way_for_the_others():
    log = PlayedLog("a", "b", capacity=25)
    log.release("b", 5.0)
    log.attach("c", 20.0, waited=4.0)
    log.attach("a", 20.0)
    log.release("c", 30.0)
    log.release("a", 30.0)
    log.attach("a", 40.0)
    assert predicted(log).predicted_loads == 1


def test_a_prediction_that_is_off_says_by_how_much():
    log = PlayedLog(capacity=25)
    log.attach("a", 10.0, waited=4.0)
    log.release("a", 20.0)
    log.attach("a", 30.0, waited=6.0)
    found = predicted(log)
    assert (found.predicted_loads, found.measured_loads) == (1, 2)
    assert found.error == pytest.approx(5.0 / 10.0 - 1)


def test_without_arrivals_there_is_nothing_to_predict():
    log = PlayedLog("a", capacity=25)
    log.attach("a", 1.0, size=None)
    assert predicted(log) is None


@pytest.mark.parametrize(
    ("loads", "cost"),
    [
        pytest.param([], LoadCost(0.0, 0.0), id="none"),
        pytest.param([(10, 2.0), (10, 4.0)], LoadCost(3.0, 0.0), id="one size"),
        pytest.param([(10, 2.0), (20, 3.0), (30, 4.0)], LoadCost(1.0, 0.1), id="a line"),
        pytest.param([(10, 1.0), (30, 6.0)], LoadCost(0.0, 0.175), id="no start below 0"),
        pytest.param([(10, 4.0), (30, 2.0)], LoadCost(3.0, 0.0), id="no bytes below 0"),
    ],
)
def test_the_cost_of_a_load_is_a_line_over_sizes(loads, cost):
    found = fit_cost([Arrival(0.0, "d", size, waited) for size, waited in loads])
    assert found.start_seconds == pytest.approx(cost.start_seconds)
    assert found.seconds_per_byte == pytest.approx(cost.seconds_per_byte)


def test_who_comes_while_it_is_loaded_waits_for_the_same_load():
    arrivals = [Arrival(0.0, "d", 1, 5.0), Arrival(4.0, "d", 1, 1.0), Arrival(5.0, "d", 1, 1.0)]
    assert list_loads(arrivals) == (arrivals[0], arrivals[2])


def test_a_request_lasts_until_no_volume_shows_it_and_the_last_until_the_logs_end():
    log = PlayedLog(capacity=25)
    log.attach("a", 10.0, waited=4.0)
    log.release("a", 20.0)
    log.attach("b", 30.0)
    log.attach("a", 32.0)
    requests = list(list_requests(tuple(read_records(log.lines))))
    assert [(one.at, one.model, one.seconds) for one in requests] == [
        (10.0, digest_of("a"), 10.0),
        (30.0, digest_of("b"), 2.0),
        (32.0, digest_of("a"), 0.0),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "No such file"), ("torn\n{}\n", "line 1 is no JSON"), ("[]\n", "line 1")],
)
def test_a_log_that_cannot_be_read_is_named(tmp_path, text, says):
    path = tmp_path / "log.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SimulationError, match=says):
        read_log(path)
