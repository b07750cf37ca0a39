"""Never two leaders: the election under invented outages, on an invented clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import looptime
from hypothesis import example, given, settings
from hypothesis import strategies as st

from modelcache_kube import AlreadyExists, ApiUnavailable, Conflict, LeaderElector


class LeaseServer:
    """One Lease, as the API server keeps it."""

    def __init__(self):
        self.lease = None
        self.version = 0

    def put(self, spec, *, guard=None):
        if guard is not None and guard != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("changed")
        self.version += 1
        kept = {key: value for key, value in spec.items() if value is not None}
        self.lease = {"metadata": {"resourceVersion": str(self.version)}, "spec": kept}
        return self.lease


class FarServer:
    """The same, as one candidate reaches it: slowly, and not at all during outages.

    An answer can be lost after the request was carried out.
    """

    def __init__(self, server, clock, outages, delay):
        self._server = server
        self._clock = clock
        self._outages = outages
        self._delay = delay

    async def _travel(self):
        await asyncio.sleep(self._delay)
        for start, length, hangs in self._outages:
            if start <= self._clock() < start + length:
                if not hangs:
                    raise ApiUnavailable("refused")
                await asyncio.sleep(start + length - self._clock())

    async def get(self, *_where):
        await self._travel()
        lease = self._server.lease
        await self._travel()
        return lease

    async def create(self, _resource, obj):
        await self._travel()
        if self._server.lease is not None:
            raise AlreadyExists("there")
        lease = self._server.put(obj["spec"])
        await self._travel()
        return lease

    async def merge_patch(self, _resource, _name, patch, **_rest):
        await self._travel()
        spec = {**self._server.lease["spec"], **patch["spec"]}
        lease = self._server.put(spec, guard=patch["metadata"]["resourceVersion"])
        await self._travel()
        return lease


OUTAGES = st.lists(st.tuples(st.floats(0, 80), st.floats(0, 40), st.booleans()), max_size=4)
FAR = st.tuples(OUTAGES, st.floats(0, 3))
HORIZON = 120.0


async def watch_for_two_leaders(electors, clock):
    terms = 0
    leader = None
    while clock() < HORIZON:
        leaders = [index for index, elector in enumerate(electors) if elector.is_leader()]
        assert len(leaders) <= 1, f"two leaders at {clock()}"
        if leaders and leaders[0] != leader:
            leader = leaders[0]
            terms += 1
        await asyncio.sleep(0.1)
    return terms


async def lead_for_ever(elector):
    while True:
        await elector.run(asyncio.Event().wait)


async def elect(ways):
    clock = asyncio.get_running_loop().time
    server = LeaseServer()
    electors = [
        LeaderElector(
            FarServer(server, clock, outages, delay),
            "ns",
            "lease",
            f"candidate-{index}",
            clock=clock,
            # Wall clocks differ by years and prove nothing.
            wall_clock=lambda index=index: datetime(2000 + 10 * index, 1, 1, tzinfo=UTC),
        )
        for index, (outages, delay) in enumerate(ways)
    ]
    tasks = [asyncio.create_task(lead_for_ever(elector)) for elector in electors]
    try:
        return await watch_for_two_leaders(electors, clock)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def on_invented_time(ways):
    loop = looptime.patch_event_loop(asyncio.new_event_loop(), start=0, end=10 * HORIZON)
    try:
        return loop.run_until_complete(elect(ways))
    finally:
        loop.close()


@settings(max_examples=30, deadline=None)
@given(st.lists(FAR, min_size=2, max_size=3))
@example([([(10.0, 30.0, True)], 0.0), ([], 0.0)])
@example([([(10.0, 30.0, True)], 2.9), ([(9.0, 9.5, True)], 0.1)])
def test_never_two_leaders(ways):
    on_invented_time(ways)


def test_a_leader_that_cannot_renew_is_followed_within_a_lease():
    assert on_invented_time([([(10.0, 60.0, True)], 0.0), ([], 0.0)]) == 2


def test_a_leader_that_misses_a_few_renewals_stays():
    outages = [(10.0, 6.0, False), (30.0, 6.0, True), (50.0, 7.0, False)]
    assert on_invented_time([(outages, 0.0), ([], 0.05)]) == 1
