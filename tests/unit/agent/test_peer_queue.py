"""Waiting for another node to read the source."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from fakes.agent_world import an_entry
from fakes.fetch_world import until
from fakes.peer_world import FolderShelf, PeerWorld
from modelcache_agent.adapters.system_clock import SystemClock
from modelcache_agent.fetch import GrantUnavailableError
from modelcache_agent.peers import waiting
from modelcache_agent.peers.waiting import GrantQueue
from modelcache_agent.ports.grants import MustWaitError
from modelcache_api.names import EntryState, Reason
from modelcache_api.wire import PeerGrant

ENTRY = an_entry("uid-1", known=False)


class Operator:
    """Says to wait as long as `holders` is not None."""

    def __init__(self, *holders):
        self.holders = holders
        self.asked = 0
        self.waited = []
        self.refusal = None

    async def open(self, entry, waited_seconds=0.0):
        self.asked += 1
        self.waited.append(waited_seconds)
        if self.refusal is not None:
            raise self.refusal
        if self.holders is not None:
            raise MustWaitError(self.holders)
        return SimpleNamespace(files=())


@pytest.fixture
def peers():
    return PeerWorld()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(waiting, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(waiting, "_LEADER_SECONDS", 0.02)


class Ticking(SystemClock):
    """A second goes by between two looks at it."""

    seconds = 0.0

    def monotonic(self):
        self.seconds += 1.0
        return self.seconds


async def wait(operator, book, states=None, news=None, clock=None):
    queue = GrantQueue(operator, book, clock or SystemClock())
    told = [] if states is None else states
    return await asyncio.wait_for(
        queue.open(ENTRY, news or asyncio.Event(), lambda state, _: told.append(state)), 10
    )


async def test_it_waits_says_so_and_goes_on_when_the_content_is_there(peers):
    operator, states = Operator(), []
    asyncio.get_running_loop().call_later(0.1, setattr, operator, "holders", None)
    await wait(operator, peers.book(), states)
    assert set(states[:-1]) == {EntryState.PENDING}
    assert states[-1] is EntryState.DOWNLOADING


async def test_a_changed_entry_is_looked_at_at_once(peers, monkeypatch):
    monkeypatch.setattr(waiting, "_LEADER_SECONDS", 3600.0)
    operator, news = Operator(), asyncio.Event()

    def change():
        operator.holders = None
        news.set()

    asyncio.get_running_loop().call_later(0.05, change)
    await wait(operator, peers.book(), news=news)
    assert operator.asked == 2


async def test_only_the_search_for_the_leader_counts_as_waiting(peers, tmp_path):
    """Whoever has followed for minutes when the leader dies shall still look for the next one."""
    with peers.node("node-r", FolderShelf(tmp_path)) as reader:
        operator = Operator(reader)
        task = asyncio.create_task(wait(operator, peers.book(), clock=Ticking()))
        await until(lambda: operator.asked > 8)
        assert max(operator.waited) <= 3
        followed, operator.holders = operator.asked, ()
        await until(lambda: operator.asked > followed + 8)
        assert operator.waited[-1] >= 8
        operator.holders = None
        await task


async def test_a_refusal_ends_the_wait(peers):
    operator = Operator()
    operator.refusal = GrantUnavailableError(Reason.GRANT_REFUSED, "no")
    with pytest.raises(GrantUnavailableError):
        await wait(operator, peers.book())


async def test_a_reader_that_moves_is_waited_for_and_one_that_is_silent_is_avoided(
    peers, tmp_path, monkeypatch
):
    class Moving(FolderShelf):
        bytes_here = 0

        def verified_bytes(self, uid, source_digest):
            self.bytes_here += 1
            return self.bytes_here

    monkeypatch.setattr("modelcache_agent.decide.peer_choice._SILENT_SECONDS", 0.3)
    monkeypatch.setattr("modelcache_agent.decide.peer_choice._STUCK_SECONDS", 0.3)
    book, shelf = peers.book(), Moving(tmp_path)
    with peers.node("node-r", shelf) as reader:
        ticket = peers.ticket(ENTRY.source_digest)
        grant = PeerGrant(ticket=ticket, holders=(reader,), reads_source=False)
        book.learn(ENTRY.uid, ENTRY.source_digest, grant)
        operator = Operator(reader)
        task = asyncio.create_task(wait(operator, book))
        await asyncio.sleep(0.8)
        assert book.avoided(ENTRY.uid) == ()
        assert shelf.bytes_here > 3
        shelf.verified_bytes = lambda _uid, _source: 7
        await until(lambda: bool(book.avoided(ENTRY.uid)))
    assert book.avoided(ENTRY.uid) == ("node-r",)
    operator.holders = None
    await task
