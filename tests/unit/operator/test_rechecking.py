"""The leader looks at sources again, on a cluster in memory with clocks of its own."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from builders import digest
from fakes.memory_core import MemoryCore, MemoryWorld
from modelcache_api.names import Condition, Reason
from modelcache_api.v1alpha1.model_version import OnSourceGone
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.keys import version_key
from modelcache_operator.ports.sources import SourceError

HOUR, DAY = 3600.0, 86_400.0
M1, C1 = ObjectKey("search", "m1"), ObjectKey("search", "c1")
GONE = SourceError(Reason.SOURCE_NOT_FOUND, "there is no bucket 'models'")
AWAY = SourceError(Reason.ENDPOINT_UNREACHABLE, "it is away", retry_after_seconds=15.0)


class Stage:
    """One version that two nodes hold, verified."""

    def __init__(self) -> None:
        self.world = MemoryWorld()
        for number in range(3):
            self.world.add_node(f"n{number}")
        self.begin()
        self.world.add_version()
        self.world.add_cache(copies=2)
        self.core.settle()
        self.world.writes.clear()
        self.world.events.clear()
        self.world.sources.listed.clear()

    def begin(self) -> None:
        """A leader's term; whoever led before is gone."""
        self.core = MemoryCore(self.world)
        self.core.begin()

    def succeed(self) -> None:
        self.core.end()
        self.begin()

    def wait(self, seconds: float, *, step: float = 60.0) -> int:
        """Time goes by, and what becomes due is done; how often the source was listed."""
        before = len(self.listed)
        end = self.world.clock.seconds + seconds
        while self.world.clock.seconds < end:
            self.world.clock.seconds = min(end, self.world.clock.seconds + step)
            self.world.renew_all()
            self.core.recheck_queue.add(version_key(M1))
            self.core.settle()
        return len(self.listed) - before

    def edit(self, **changes) -> None:
        version = self.version
        source = version.spec.source.model_copy(update=changes.pop("source", {}))
        spec = version.spec.model_copy(update={"source": source, **changes})
        self.world.show(replace(version, spec=spec, generation=version.generation + 1))
        self.core.settle()

    @property
    def listed(self):
        return self.world.sources.listed

    @property
    def version(self):
        return self.world.cache.model_version_named(M1)

    @property
    def missed(self) -> int:
        """Looks that this leader counts as never made."""
        return sum(self.core.missed_looks)

    @property
    def told(self):
        return [note.reason for note in self.world.events]

    def say(self, failure) -> None:
        """What the source answers from now on; None: as ever."""
        self.world.sources.failures = {"m1": failure} if failure else {}

    def condition(self, kind=Condition.SOURCE_CURRENT, view=None):
        conditions = (view or self.version).status.conditions
        return next(((c.status, c.reason) for c in conditions if c.type == kind), None)

    def ready(self):
        cache = self.world.cache.model_cache(C1)
        return self.condition(Condition.READY), self.condition(Condition.READY, cache)

    def holders(self) -> int:
        return sum(bool(node.spec.entries) for node in self.world.cache.cache_nodes())


ALL_WELL = (("True", "Resolved"), ("True", "Cached"))


@pytest.fixture
def stage():
    return Stage()


def test_a_source_is_listed_once_a_period_for_all_nodes(stage):
    assert stage.condition() == ("True", "Resolved")
    assert stage.wait(DAY - 60, step=HOUR) == 0
    assert stage.wait(0.1 * DAY + 120, step=600) == 1
    assert stage.wait(3 * DAY, step=HOUR) in (2, 3)
    assert stage.told == []


def test_a_check_that_finds_nothing_new_writes_one_time_a_period(stage):
    first = stage.version.status.last_check_time
    stage.wait(5 * DAY, step=HOUR)
    assert stage.world.writes == {"version status": len(stage.listed)}
    assert len(stage.listed) <= 5
    assert stage.version.status.last_check_time > first


def test_short_intervals_do_not_write_more_than_once_an_hour(stage):
    stage.edit(source={"recheck_interval": "10s"})
    stage.world.writes.clear()
    assert stage.wait(2 * HOUR, step=10) > 300
    assert stage.world.writes["version status"] <= 2


def test_nobody_else_is_looked_at_because_of_a_check(stage):
    stage.core.runs.clear()
    stage.wait(2 * DAY, step=HOUR)
    assert stage.core.runs["cache"] == stage.core.runs["node"] == 0


@pytest.mark.parametrize("policy", list(OnSourceGone))
def test_C06_a_change_is_told_once_and_takes_nothing_away(stage, policy):
    stage.edit(on_source_gone=policy)
    stage.world.sources.etag = "other"
    stage.wait(2.5 * DAY, step=HOUR)
    assert stage.condition() == ("False", "SourceChanged")
    assert (stage.ready(), stage.holders()) == (ALL_WELL, 2)
    assert stage.told == ["SourceChanged"]


def test_a_source_that_is_again_what_it_was_clears_the_condition(stage):
    stage.world.sources.etag = "other"
    stage.wait(1.5 * DAY, step=HOUR)
    stage.world.sources.etag = None
    stage.wait(1.2 * DAY, step=HOUR)
    assert stage.condition() == ("True", "Resolved")
    assert stage.told == ["SourceChanged", "Resolved"]


def test_C21_a_source_that_is_gone_is_told_and_its_copies_stay(stage):
    stage.say(GONE)
    stage.wait(1.2 * DAY)
    assert stage.condition() == ("False", "SourceGone")
    assert (stage.ready(), stage.holders()) == (ALL_WELL, 2)
    assert stage.told == ["SourceGone"]


def test_C21_drop_takes_the_copies_and_brings_them_back(stage):
    stage.edit(on_source_gone=OnSourceGone.DROP)
    stage.say(GONE)
    stage.wait(1.2 * DAY)
    assert stage.ready() == (("False", "SourceGone"), ("False", "SourceGone"))
    assert stage.holders() == 0
    assert stage.told == ["SourceGone", "SourceGone"]  # of the version, and of the cache
    stage.say(None)
    stage.wait(1.2 * DAY, step=HOUR)
    assert (stage.ready(), stage.holders()) == (ALL_WELL, 2)


def test_the_policy_may_be_changed_when_it_has_happened(stage):
    stage.say(GONE)
    stage.wait(1.2 * DAY)
    stage.edit(on_source_gone=OnSourceGone.DROP)
    assert stage.holders() == 0
    stage.edit(on_source_gone=OnSourceGone.KEEP)
    assert (stage.ready(), stage.holders()) == (ALL_WELL, 2)


def test_one_answer_that_it_is_gone_drops_nothing(stage):
    stage.edit(on_source_gone=OnSourceGone.DROP)
    stage.say(GONE)
    while not stage.wait(60):
        pass
    assert (stage.condition(), stage.holders()) == (("True", "Resolved"), 2)
    stage.say(None)
    assert stage.wait(60) == 1
    assert (stage.condition(), stage.told) == (("True", "Resolved"), [])


@pytest.mark.parametrize("policy", list(OnSourceGone))
def test_C14_trouble_changes_nothing_and_is_told_once(stage, policy):
    stage.edit(on_source_gone=policy)
    stage.say(AWAY)
    stage.world.writes.clear()
    stage.wait(2 * DAY)
    assert stage.condition() == ("Unknown", "EndpointUnreachable")
    assert (stage.ready(), stage.holders()) == (ALL_WELL, 2)
    assert stage.told == ["EndpointUnreachable"]
    assert stage.world.writes == {"version status": 1}
    # A quarter of an hour apart, once it has lasted.
    assert len(stage.listed) < 24 * 4 + 12
    stage.say(None)
    stage.wait(HOUR)
    assert stage.condition() == ("True", "Resolved")


def test_trouble_does_not_bring_back_what_was_dropped(stage):
    stage.edit(on_source_gone=OnSourceGone.DROP)
    stage.say(GONE)
    stage.wait(1.2 * DAY)
    stage.say(AWAY)
    stage.wait(2 * DAY, step=60)
    assert (stage.condition(), stage.holders()) == (("False", "SourceGone"), 0)


def test_another_way_to_the_store_is_tried_at_once(stage):
    stage.edit(source={"endpoint": "http://elsewhere"})
    assert len(stage.listed) == 1
    assert stage.wait(DAY / 2, step=HOUR) == 0


def test_another_interval_holds_at_once_and_counts_from_the_last_check(stage):
    stage.wait(2 * HOUR, step=HOUR)
    stage.edit(source={"recheck_interval": "1h"})
    assert len(stage.listed) == 1
    stage.edit(source={"recheck_interval": "720h"})
    assert stage.wait(10 * DAY, step=HOUR) == 0


def test_C23_what_is_pinned_is_not_looked_at_again(stage):
    stage.world.sources.etag = "other"
    stage.edit(digest=stage.version.status.content_digest)
    assert stage.wait(10 * DAY, step=HOUR) == 0
    assert stage.condition() is None
    assert stage.version.status.last_check_time is None
    assert stage.ready() == ALL_WELL


def test_a_new_leader_goes_on_where_the_old_one_was(stage):
    stage.wait(DAY / 2, step=HOUR)
    stage.world.writes.clear()
    stage.succeed()
    assert stage.world.writes == {}
    assert stage.wait(0.4 * DAY, step=HOUR) == 0
    assert stage.wait(0.2 * DAY, step=HOUR) == 1


@pytest.mark.parametrize("answer", ["other", GONE, AWAY])
def test_a_new_leader_knows_what_the_old_one_found(stage, answer):
    if isinstance(answer, str):
        stage.world.sources.etag = answer
    else:
        stage.say(answer)
    stage.wait(1.2 * DAY)
    found = stage.condition()
    stage.world.writes.clear()
    stage.world.events.clear()
    stage.succeed()
    assert (stage.condition(), stage.world.writes, stage.told) == (found, {}, [])


def test_trouble_is_asked_about_soon_by_a_new_leader(stage):
    stage.say(AWAY)
    stage.wait(1.2 * DAY)
    stage.say(None)
    stage.succeed()
    stage.wait(61)
    assert stage.condition() == ("True", "Resolved")


def test_C62_a_step_of_the_wall_clock_lists_nothing(stage):
    stage.world.clock.offset = timedelta(days=2)
    assert stage.wait(HOUR, step=600) == 0
    stage.world.clock.offset = timedelta(days=-2)
    assert stage.wait(HOUR, step=600) == 0
    assert (stage.ready(), stage.holders()) == (ALL_WELL, 2)


def test_C62_a_check_in_the_future_counts_as_now_with_a_warning(stage, caplog):
    status = stage.version.status
    ahead = status.last_check_time + timedelta(days=365)
    stage.world.show(
        replace(stage.version, status=status.model_copy(update={"last_check_time": ahead}))
    )
    with caplog.at_level(logging.WARNING):
        stage.succeed()
    assert "in the future" in caplog.text
    assert stage.wait(DAY - 60, step=HOUR) == 0
    assert stage.wait(0.1 * DAY + 120, step=600) == 1
    assert stage.version.status.last_check_time < ahead


def test_C62_after_a_step_forward_a_new_leader_spreads_what_seems_overdue(stage):
    stage.world.clock.offset = timedelta(days=2)
    stage.succeed()
    assert stage.listed == []
    assert stage.wait(0.1 * DAY + 60, step=60) == 1
    assert stage.holders() == 2


def test_a_list_that_was_lost_still_tells_a_change(stage):
    stage.world.sources.etag = "other"
    stage.world.manifests.sources.clear()
    stage.wait(1.2 * DAY, step=HOUR)
    assert stage.condition() == ("False", "SourceChanged")


def test_a_version_that_is_deleted_is_forgotten(stage):
    stage.world.hide(stage.version)
    stage.core.settle()
    assert stage.wait(2 * DAY, step=HOUR) == 0


def test_a_version_resolved_by_an_older_release_is_looked_at(stage):
    status = stage.version.status
    old = tuple(c for c in status.conditions if c.type != Condition.SOURCE_CURRENT)
    status = status.model_copy(update={"last_check_time": None, "conditions": old})
    stage.core.end()
    stage.world.show(replace(stage.version, status=status))
    stage.begin()
    assert stage.condition() is None
    assert stage.wait(0.1 * DAY + 60, step=60) == 1
    assert stage.condition() == ("True", "Resolved")


def test_a_pin_that_is_set_late_ends_what_was_said_of_the_source(stage):
    stage.world.sources.etag = "other"
    stage.wait(1.2 * DAY, step=HOUR)
    stage.edit(digest=digest("e"))
    assert stage.condition() is None


def test_C61_hours_without_an_operator_cost_one_look_and_then_one_a_minute(stage):
    stage.edit(source={"recheck_interval": "1m"})
    stage.wait(300, step=10)
    stage.core.end()
    stage.world.clock.seconds += 3 * HOUR
    stage.world.renew_all()
    stage.listed.clear()
    stage.begin()
    assert stage.wait(59, step=1) == 1
    assert stage.wait(600, step=1) in (9, 10)
    # The status is up to an hour old: looks of that time may have been made.
    assert 2 * HOUR / 66 - 2 < stage.missed < 3 * HOUR / 60


def test_C61_days_without_an_operator_are_counted_once_by_whoever_looks(stage):
    stage.wait(1.2 * DAY, step=HOUR)
    stage.core.end()
    stage.world.clock.seconds += 3.5 * DAY
    stage.world.renew_all()
    stage.listed.clear()
    stage.begin()
    assert (stage.listed, stage.missed) == ([], 0)
    stage.succeed()
    assert stage.wait(0.1 * DAY + 60) == 1
    assert stage.missed == 2
    stage.succeed()
    assert (stage.wait(1.2 * DAY, step=HOUR), stage.missed) == (1, 0)


def test_C61_a_leader_that_was_suspended_for_hours_looks_once(stage):
    stage.edit(source={"recheck_interval": "1m"})
    stage.wait(300, step=10)
    stage.listed.clear()
    assert stage.wait(3 * HOUR, step=3 * HOUR) == 1
    assert 3 * HOUR / 66 - 2 < (missed := stage.missed) < 3 * HOUR / 60
    assert stage.wait(59, step=1) == 0
    assert stage.wait(600, step=1) in (9, 10)
    assert stage.missed == missed


def test_C61_from_daily_to_every_minute_is_one_look_at_once_and_then_one_a_minute(stage):
    stage.wait(12 * HOUR, step=HOUR)
    stage.listed.clear()
    stage.edit(source={"recheck_interval": "1m"})
    assert len(stage.listed) == 1
    assert stage.wait(59, step=1) == 0
    assert stage.wait(600, step=1) in (9, 10)
    assert stage.missed == 0


def test_C61_looks_that_are_made_are_not_missed_even_if_they_fail(stage):
    stage.wait(2.5 * DAY, step=HOUR)
    stage.say(AWAY)
    stage.wait(2.5 * DAY)
    assert stage.missed == 0
    stage.say(None)
    stage.succeed()
    stage.wait(1.2 * DAY, step=HOUR)
    assert stage.missed == 0


def test_C61_an_edit_while_nobody_led_makes_no_look_a_missed_one(stage):
    stage.core.end()
    stage.world.clock.seconds += 3.5 * DAY
    stage.edit(source={"recheck_interval": "1m"})
    stage.begin()
    assert stage.wait(61, step=1) >= 1
    assert stage.missed == 0
