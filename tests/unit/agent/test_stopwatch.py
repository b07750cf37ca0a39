"""A transfer is timed by its reports."""

from __future__ import annotations

import pytest

from modelcache_agent.fetch import Progress
from modelcache_agent.stopwatch import Stopwatch


def play(*reports: tuple[float, int]):
    """The cost of a transfer of 100 bytes, and what was passed on."""
    now, heard = [10.0], []
    watch = Stopwatch(lambda: now[0], heard.append)
    for at, verified in reports:
        now[0] = 10.0 + at
        watch.note(Progress("v1", verified, 100, finished_files=0, total_files=1))
    return watch.measure(), [progress.verified_bytes for progress in heard]


def test_a_start_and_a_rate_are_told_apart_and_every_report_goes_on():
    cost, heard = play((1.0, 0), (3.0, 10), (7.0, 50), (12.0, 100))
    assert cost.seconds_per_byte == pytest.approx(0.1)
    assert cost.start_seconds == pytest.approx(2.0)
    assert heard == [0, 10, 50, 100]


def test_what_comes_after_the_last_bytes_is_not_the_sources_time():
    assert play((3.0, 10), (12.0, 100), (60.0, 100))[0] == play((3.0, 10), (12.0, 100))[0]


def test_a_transfer_that_was_resumed_near_its_end_says_nothing():
    assert play((3.0, 60), (7.0, 100))[0] is None


def test_a_transfer_without_a_report_says_nothing():
    assert play()[0] is None
