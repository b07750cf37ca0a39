from __future__ import annotations

from datetime import timedelta

import pytest

from builders import NOW
from modelcache_operator.decide.liveness import (
    Liveness,
    LivenessLimits,
    forgive,
    judge,
    note_leases,
)
from modelcache_operator.decide.world import AgentLeaseView, NodeName, Uid

LIMITS = LivenessLimits.of(300)
N1, UID = NodeName("n1"), Uid("uid-n1")


def lease(minutes: float = 0, uid: str = UID, node: str = "n1") -> AgentLeaseView:
    return AgentLeaseView(NodeName(node), Uid(uid), NOW + timedelta(minutes=minutes))


def note(previous, leases, now, known=None):
    return note_leases(previous, leases, known=known or {}, now=now)


def judged(sightings, now, uid=UID):
    return judge(sightings.get(N1), uid, now=now, limits=LIMITS)


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        pytest.param(0, Liveness.ALIVE, id="just renewed"),
        pytest.param(149, Liveness.ALIVE, id="two renewals missed"),
        pytest.param(150, Liveness.SILENT, id="a third one missed"),
        pytest.param(299, Liveness.SILENT, id="not yet lost"),
        pytest.param(300, Liveness.LOST, id="lost"),
    ],
)
def test_an_agent_is_judged_by_the_age_of_its_last_renewal(age, expected):
    assert judged(note({}, [lease()], 1000.0), 1000.0 + age) is expected


def test_an_agent_that_was_never_seen_is_absent():
    assert judged({}, 0) is Liveness.ABSENT


def test_only_a_changed_renewal_counts_whatever_the_clock_of_the_node_says():
    first = note({}, [lease(-600)], 0)
    unchanged = note(first, [lease(-600)], 200)
    assert judged(unchanged, 300) is Liveness.LOST
    assert judged(note(unchanged, [lease(-599)], 290), 300) is Liveness.ALIVE


def test_a_lease_that_was_deleted_ages_like_a_silent_one():
    sightings = note({}, [lease()], 0, known={N1: False})
    sightings = note(sightings, [], 100, known={N1: False})
    assert judged(sightings, 299) is Liveness.SILENT
    assert judged(sightings, 300) is Liveness.LOST


def test_a_node_without_lease_and_cache_node_is_forgotten():
    assert note(note({}, [lease()], 0), [], 10) == {}


def test_a_new_leader_gives_a_node_without_lease_its_time():
    sightings = note({}, [], 0, known={N1: False})
    assert judged(sightings, 10) is Liveness.ALIVE
    assert judged(sightings, 300) is Liveness.LOST


def test_a_new_leader_does_not_take_a_dead_node_for_alive():
    sightings = note({}, [lease()], 0, known={N1: True})
    assert judged(sightings, 1) is Liveness.LOST
    sightings = note(sightings, [lease()], 10, known={N1: True})
    assert judged(sightings, 11) is Liveness.LOST
    renewed = note(sightings, [lease(1)], 20, known={N1: True})
    assert judged(renewed, 21) is Liveness.ALIVE


def test_a_lease_of_an_earlier_node_of_the_same_name_says_nothing():
    sightings = note({}, [lease()], 0)
    assert judged(sightings, 1, uid=Uid("rebuilt")) is Liveness.ABSENT
    rebuilt = note(sightings, [lease(uid="rebuilt")], 2)
    assert judged(rebuilt, 3, uid=Uid("rebuilt")) is Liveness.ALIVE


def test_nobody_is_called_lost_for_the_time_in_which_nobody_could_renew():
    sightings = forgive(note({}, [lease()], 0), 600)
    assert judged(sightings, 620) is Liveness.ALIVE
    assert judged(sightings, 600 + 300) is Liveness.LOST


def test_silence_comes_well_before_loss_for_any_limit():
    assert LivenessLimits.of(10).silent_after_seconds == 5
    assert LivenessLimits.of(3600).silent_after_seconds == 150


@pytest.mark.parametrize(
    ("lost_after", "interval", "outage"),
    [
        pytest.param(300, 10, 30, id="the defaults"),
        pytest.param(300, 40, 120, id="lists that are far apart are no outage"),
        pytest.param(12, 1, 6, id="an outage shows before it makes anybody lost"),
    ],
)
def test_the_gap_that_means_an_outage_follows_both_options(lost_after, interval, outage):
    assert LivenessLimits.of(lost_after, interval).outage_after_seconds == outage
