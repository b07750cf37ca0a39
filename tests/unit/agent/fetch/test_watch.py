"""What counts as a stall."""

from __future__ import annotations

import socket

import pytest

from modelcache_agent.decide.transfer_plan import StallPolicy
from modelcache_agent.fetch.watch import StreamWatch

POLICY = StallPolicy(window_seconds=10, min_bytes_per_second=1000)


class Hands:
    """A clock that is moved by hand, and a throttle that takes its time."""

    def __init__(self) -> None:
        self.time = 0.0
        self.turn_seconds = 0.0
        self.during_turn = lambda: None

    def monotonic(self) -> float:
        return self.time

    def take(self, wanted, is_stopped) -> int:
        self.time += self.turn_seconds
        self.during_turn()
        return wanted


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def watching(hands, pair) -> StreamWatch:
    watch = StreamWatch(hands, hands)
    watch.set_socket(pair[0])
    watch.start_waiting()
    return watch


def test_a_stream_that_waits_for_its_turn_is_not_stalled(pair):
    hands = Hands()
    watch = watching(hands, pair)
    hands.turn_seconds = 60
    hands.during_turn = lambda: watch.interrupt_if_stalled(hands.time, POLICY)
    for _ in range(3):
        assert watch.await_turn(4096) == 4096
        watch.interrupt_if_stalled(hands.time, POLICY)
    assert not watch.was_stalled


def test_turns_do_not_hide_a_server_that_trickles(pair):
    hands = Hands()
    watch = watching(hands, pair)
    hands.turn_seconds = 1
    for _ in range(11):
        watch.await_turn(100)
        hands.time += 1
        watch.received += 100
    watch.interrupt_if_stalled(hands.time, POLICY)
    assert watch.was_stalled
    assert pair[1].recv(1) == b""
