"""How much of the agent the processes of one pod may take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelcache_agent.decide.socket_rules import (
    MOST_CONNECTIONS,
    MOST_CONNECTIONS_OF_A_POD,
    MOST_CONTROLS,
    MOST_CONTROLS_OF_A_POD,
    Pace,
    begin_turns,
    refuse_connection,
    refuse_control,
    refuse_reader,
)

PACE = Pace(3, 2.0)


def test_a_burst_is_taken_at_once_and_then_one_in_so_many_seconds():
    turns, said = begin_turns(PACE, 100.0), []
    for now in (100.0, 100.0, 100.0, 100.0, 101.0, 102.0, 102.5, 200.0, 200.0, 200.0, 200.0):
        turns, seconds = turns.take(now)
        said.append(seconds)
    assert said == [0.0, 0.0, 0.0, 2.0, 1.0, 0.0, 1.5, 0.0, 0.0, 0.0, 2.0]


@given(st.lists(st.floats(0.0, 10.0), max_size=60))
def test_over_any_time_no_more_are_taken_than_burst_and_pace_allow_and_waiting_ends(pauses):
    now, taken, turns = 100.0, 0, begin_turns(PACE, 100.0)
    for pause in pauses:
        now += pause
        turns, seconds = turns.take(now)
        taken += seconds == 0
        assert seconds <= PACE.seconds
    assert taken <= PACE.burst + (now - 100.0) / PACE.seconds + 1e-6
    assert turns.take(now + PACE.seconds + 1e-6)[1] == 0


def test_a_clock_that_stands_still_or_goes_back_gives_nothing():
    turns = begin_turns(Pace(1, 1.0), 100.0).take(100.0)[0]
    assert turns.take(99.0)[1] > 0
    assert turns.take(100.0)[1] == 1.0


def test_readers_and_controls_have_room_of_their_own_and_together_no_more():
    assert refuse_reader(MOST_CONNECTIONS_OF_A_POD - 1, MOST_CONNECTIONS - 1) is None
    assert "of a process" in (refuse_reader(MOST_CONNECTIONS_OF_A_POD, 16) or "")
    assert "takes no more" in (refuse_reader(1, MOST_CONNECTIONS) or "")
    assert refuse_control(MOST_CONTROLS_OF_A_POD - 1, MOST_CONTROLS - 1) is None
    assert "drains" in (refuse_control(MOST_CONTROLS_OF_A_POD, 4) or "")
    assert "takes no more" in (refuse_control(1, MOST_CONTROLS) or "")
    most_of_pod = MOST_CONNECTIONS_OF_A_POD + MOST_CONTROLS_OF_A_POD
    assert refuse_connection(most_of_pod - 1, MOST_CONNECTIONS + MOST_CONTROLS - 1) is None
    assert refuse_connection(most_of_pod, 20) is not None
    assert refuse_connection(1, MOST_CONNECTIONS + MOST_CONTROLS) is not None
