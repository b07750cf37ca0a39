"""Keeping and losing a slot while a transfer runs, and waiting for one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from fakes.agent_world import an_entry
from fakes.fetch_world import until
from modelcache_agent import slots
from modelcache_agent.adapters.system_clock import SystemClock
from modelcache_agent.fetch import GrantUnavailableError, SourceGate
from modelcache_agent.fetch.clock import SystemClock as FetchClock
from modelcache_agent.peers.waiting import GrantQueue
from modelcache_agent.ports.grants import MustWaitError, Slot
from modelcache_agent.slots import SlotKeeper
from modelcache_api.names import EntryState, Reason
from modelcache_api.wire import SlotAnswer

UID = "uid-1"
CLOCK = SystemClock()


def granted(rate=None, *, lease=60.0, again=0.02):
    return SlotAnswer(lease_seconds=lease, bytes_per_second=rate, ask_again_seconds=again)


class Operator:
    """Answers what a test has laid out; the last answer again and again."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def ask_slot(self, uid, query):
        self.asked.append(query)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Slot(answer, CLOCK.monotonic())


class Transfer:
    def __init__(self, operator, first):
        self.gate = SourceGate(FetchClock(), CLOCK.monotonic)
        self.keeper = SlotKeeper(operator, self.gate, CLOCK)
        slot = None if first is None else Slot(first, CLOCK.monotonic())
        self.stopped = asyncio.Event()
        self.keeping = self.keeper.keeping(UID, slot, self.stop)

    async def stop(self):
        self.stopped.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(slots, "_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(slots, "_SHORTEST_SECONDS", 0.005)


async def test_it_is_renewed_with_the_rate_that_is_kept_to_and_given_back_in_the_end():
    operator = Operator(granted(200 << 10), granted(100 << 10))
    transfer = Transfer(operator, granted(300 << 10))
    async with transfer.keeping as lease:
        await until(lambda: len(operator.asked) >= 3)
        assert transfer.gate.may_read(UID)
    rates = [query.bytes_per_second for query in operator.asked[:3]]
    assert rates == [300 << 10, 200 << 10, 100 << 10]
    assert all(query.holds for query in operator.asked[:3])
    assert not operator.asked[-1].wants
    assert not lease.is_lost
    assert transfer.gate.may_read(UID), "the version is not limited any more"


async def test_whoever_is_not_renewed_in_time_stops_reading():
    away = GrantUnavailableError(Reason.OPERATOR_UNREACHABLE, "away")
    transfer = Transfer(Operator(away), granted(lease=0.3))
    async with transfer.keeping as lease:
        await asyncio.wait_for(transfer.stopped.wait(), 10)
        assert lease.is_lost
        assert not transfer.gate.may_read(UID)


async def test_whoever_is_told_to_stop_does_at_once():
    refused = SlotAnswer(message="2 nodes read s3://b/ now")
    transfer = Transfer(Operator(refused), granted())
    async with transfer.keeping as lease:
        await asyncio.wait_for(transfer.stopped.wait(), 10)
        assert lease.is_lost


async def test_a_replica_that_does_not_lead_changes_nothing():
    elsewhere = SlotAnswer(leads=False, ask_again_seconds=0.02)
    operator = Operator(elsewhere)
    transfer = Transfer(operator, granted())
    async with transfer.keeping as lease:
        await until(lambda: len(operator.asked) >= 3)
        assert transfer.gate.may_read(UID)
        assert not lease.is_lost


async def test_a_limit_that_is_gone_is_asked_about_no_more():
    operator = Operator(SlotAnswer(is_limited=False))
    transfer = Transfer(operator, granted(lease=0.5))
    async with transfer.keeping as lease:
        await until(lambda: bool(operator.asked))
        await asyncio.sleep(0.6)
        assert len(operator.asked) == 1
        assert transfer.gate.may_read(UID)
        assert not lease.is_lost


async def test_who_reads_from_others_asks_only_when_the_source_is_wanted():
    none = SlotAnswer(ask_again_seconds=0.02)
    operator = Operator(none, none, none, granted())
    transfer = Transfer(operator, none)
    async with transfer.keeping as lease:
        await until(lambda: len(operator.asked) >= 2)
        assert not any(query.wants for query in operator.asked)
        assert not transfer.gate.may_read(UID)
        await until(lambda: transfer.gate.may_read(UID))
        assert operator.asked[-1].wants
        assert not lease.is_lost


async def test_without_a_limit_nobody_is_asked():
    operator = Operator(granted())
    async with Transfer(operator, None).keeping:
        await asyncio.sleep(0.05)
    assert operator.asked == []


class Line:
    """Grants that wait for `slot` until it is None."""

    def __init__(self):
        self.slot = SlotAnswer(ask_again_seconds=0.02, message="2 nodes read s3://b/ now")
        self.asked = 0

    async def open(self, entry, waited_seconds=0.0):
        self.asked += 1
        if self.slot is not None:
            raise MustWaitError((), self.slot)
        return SimpleNamespace(files=())


async def test_who_waits_for_a_slot_says_who_is_ahead_and_asks_only_with_a_turn_of_its_own():
    line, told, turns = Line(), [], []
    queue = GrantQueue(line, None, CLOCK, lambda: bool(turns))
    task = asyncio.create_task(
        queue.open(an_entry(UID), asyncio.Event(), lambda *state: told.append(state))
    )
    await until(lambda: line.asked == 1)
    await asyncio.sleep(0.1)
    assert line.asked == 1, "this node fetches as many models as it may"
    assert told == [(EntryState.PENDING, "2 nodes read s3://b/ now")]
    line.slot = SlotAnswer(leads=False, ask_again_seconds=0.02, message="looked for")
    turns.append(1)
    await until(lambda: line.asked >= 3)
    assert told == [(EntryState.PENDING, "2 nodes read s3://b/ now")]
    line.slot = None
    await asyncio.wait_for(task, 10)
    assert told[-1] == (EntryState.DOWNLOADING, "")
