"""When a missing watch makes /healthz red, and when it must not."""

from __future__ import annotations

import pytest

from modelcache_operator.adapters.watch_health import WatchHealth
from modelcache_operator.health import Health

LIMIT = 600
RED = LIMIT + 61


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watches(clock):
    watches = WatchHealth(clock, ["nodes", "pods"])
    watches.begin()
    watches.opened("nodes")
    return watches


def play(watches, clock, steps):
    """Steps of pods: (seconds, what happened)."""
    for seconds, act in steps:
        clock.now = seconds
        getattr(watches, act)("pods")
        watches.heard("nodes")


@pytest.mark.parametrize(
    ("steps", "now"),
    [
        pytest.param([(0, "opened")], RED, id="open and silent"),
        pytest.param([(0, "opened"), (601, "closed"), (601, "opened")], 1290, id="renewed"),
        pytest.param([(0, "opened"), (690, "opened")], 691, id="renewed, its end unnoticed"),
        pytest.param([(0, "opened"), (100, "closed")], 100 + LIMIT, id="an outage of the limit"),
        pytest.param(
            [(0, "opened"), (100, "closed"), (699, "closed"), (740, "opened")],
            741,
            id="opened again after an outage of the whole limit",
        ),
        pytest.param(
            [(second, act) for second in range(0, 700, 2) for act in ("opened", "heard", "closed")],
            700,
            id="cut again and again, and changes come through",
        ),
        pytest.param([], LIMIT, id="not opened yet"),
    ],
)  # fmt: skip
def test_an_open_watch_or_a_short_outage_is_no_complaint(watches, clock, steps, now):
    play(watches, clock, steps)
    clock.now = now
    watches.heard("nodes")
    assert watches.complain(LIMIT) is None


@pytest.mark.parametrize(
    ("steps", "now", "seconds"),
    [
        pytest.param([], RED, RED, id="never open"),
        pytest.param([(0, "opened"), (100, "closed")], 100 + RED, RED, id="lost"),
        pytest.param(
            [(0, "opened"), (100, "closed"), (300, "closed"), (650, "closed")],
            100 + RED,
            RED,
            id="lost, and tried in vain",
        ),
        pytest.param(
            [(second, act) for second in range(0, 662, 2) for act in ("opened", "closed")],
            RED,
            RED,
            id="cut as soon as it is open",
        ),
        pytest.param(
            [(second, "opened") for second in range(0, 662, 2)],
            RED,
            RED,
            id="opened anew all the time",
        ),
        pytest.param([(0, "opened")], 700 + RED, RED, id="not renewed for longer than any lives"),
    ],
)
def test_a_watch_that_is_missing_for_longer_is_named_with_its_cure(
    watches, clock, steps, now, seconds
):
    play(watches, clock, steps)
    clock.now = now
    watches.heard("nodes")
    complaint = watches.complain(LIMIT)
    assert complaint.startswith(f"no watch of pods has been open for {seconds} s (--silence-limit)")
    assert "the verb watch in the operator's ClusterRole" in complaint
    assert "the path to the API server" in complaint


def test_all_that_are_missing_are_named(watches, clock):
    watches.closed("nodes")
    clock.now = RED
    assert watches.complain(LIMIT).startswith("no watch of nodes, pods has been open for 661 s")


def test_before_the_beginning_nothing_is_missed(clock):
    watches = WatchHealth(clock, ["pods"])
    watches.closed("pods")
    clock.now = 5000
    assert watches.complain(LIMIT) is None
    watches.begin()
    assert watches.complain(LIMIT) is None


def test_other_requests_are_none_of_its_business(watches, clock):
    for act in (watches.opened, watches.heard, watches.closed):
        act("leases")
    clock.now = RED
    assert "leases" not in watches.complain(LIMIT)


class Api:
    silent_seconds = 0.0

    def note(self, code):
        """Not of interest here."""


@pytest.fixture
def world():
    return {"watching": True, "waiting": False}


@pytest.fixture
def health(watches, world):
    return Health(
        Api(),
        watches,
        limit_seconds=LIMIT,
        is_watching=lambda: world["watching"],
        is_waiting_for_crds=lambda: world["waiting"],
    )


def test_health_is_told_of_watches_by_the_tap(health, watches, clock):
    health.note_request("watch", "pods", 200)
    clock.now = 100
    watches.heard("nodes")
    health.note_request("list", "pods", 200)
    health.note_request("watch", "pods", 403)
    clock.now = 100 + LIMIT
    watches.heard("nodes")
    assert health.complain() is None
    clock.now = 100 + RED
    assert "no watch of pods" in health.complain()
    health.note_request("watch", "pods", 200)
    clock.now += 5
    assert health.complain() is None


def test_a_crd_that_is_missing_is_waited_for(health, world, clock):
    world["waiting"] = True
    clock.now = RED
    assert health.complain() is None
    world["waiting"] = False
    assert "no watch of" in health.complain()


def test_watches_that_have_ended_altogether(health, world):
    world["watching"] = False
    assert health.complain() == "the watches have ended"
