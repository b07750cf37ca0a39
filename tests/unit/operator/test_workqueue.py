from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from modelcache_api.log_fields import add_fields
from modelcache_kube import ApiUnavailable
from modelcache_operator.decide.world import NodeName
from modelcache_operator.keys import node_key
from modelcache_operator.workqueue import Requeue, RetryDelays, WorkQueue

pytestmark = pytest.mark.looptime

A, B = node_key(NodeName("a")), node_key(NodeName("b"))
DELAYS = RetryDelays(first_seconds=1, longest_seconds=60)


class Told:
    def __init__(self) -> None:
        self.results: list[str] = []

    def finished(self, kind: str, result: str, seconds: float) -> None:
        assert kind == "node"
        assert seconds >= 0
        self.results.append(result)


class Handler:
    """Takes a second for each key, and does what the script says."""

    def __init__(self, *script: object) -> None:
        self.script = list(script)
        self.runs: list[tuple[float, str]] = []
        self.at_once = self.most_at_once = 0

    async def __call__(self, key):
        self.runs.append((asyncio.get_running_loop().time(), key.name))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(1)
        finally:
            self.at_once -= 1
        step = self.script.pop(0) if self.script else None
        if isinstance(step, Exception):
            raise step
        return Requeue(step)

    def starts(self) -> list[float]:
        return [round(at, 3) for at, _ in self.runs]


@asynccontextmanager
async def running(handler, workers=2):
    told = Told()
    queue = WorkQueue(told, uniform=lambda _low, _high: 1.0, delays=DELAYS)
    queue.told = told
    task = asyncio.create_task(queue.run(handler, workers))
    await asyncio.sleep(0)
    try:
        yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_key_added_many_times_is_looked_at_once():
    handler = Handler()
    async with running(handler) as queue:
        for _ in range(100):
            queue.add(A)
        await asyncio.sleep(9)
    assert len(handler.runs) == 1


async def test_a_key_added_while_it_is_worked_on_is_looked_at_once_more_and_never_twice_at_once():
    handler = Handler()
    async with running(handler) as queue:
        queue.add(A)
        await asyncio.sleep(0.5)
        for _ in range(10):
            queue.add(A)
        await asyncio.sleep(9)
    assert handler.starts() == [0, 1]
    assert handler.most_at_once == 1


async def test_no_more_keys_at_once_than_there_are_workers():
    handler = Handler()
    async with running(handler, workers=2) as queue:
        for name in "abcdef":
            queue.add(node_key(NodeName(name)))
        await asyncio.sleep(9)
    assert handler.most_at_once == 2
    assert len(handler.runs) == 6


async def test_a_delayed_key_waits_and_the_earliest_request_wins():
    handler = Handler()
    async with running(handler) as queue:
        queue.add(A, after_seconds=10)
        queue.add(A, after_seconds=5)
        queue.add(A, after_seconds=20)
        await asyncio.sleep(30)
    assert handler.starts() == [5]


async def test_a_key_that_is_due_at_once_need_not_wait_for_its_delay():
    handler = Handler()
    async with running(handler) as queue:
        queue.add(A, after_seconds=10)
        queue.add(A)
        queue.add(A, after_seconds=3)
        await asyncio.sleep(30)
    assert handler.starts() == [0]


async def test_failures_wait_longer_each_time_and_a_success_forgets_them():
    handler = Handler(*[ApiUnavailable("away")] * 3, None, ApiUnavailable("away"))
    async with running(handler) as queue:
        queue.add(A)
        await asyncio.sleep(20)
        queue.add(A)
        await asyncio.sleep(10)
    assert handler.starts() == [0, 2, 5, 10, 20, 22]
    assert queue.told.results == ["retry", "retry", "retry", "success", "retry", "success"]


async def test_the_delay_has_a_bound_and_a_jitter_and_obeys_the_server():
    seen = []

    def uniform(low, high):
        seen.append((low, high))
        return high

    assert DELAYS.after(50, uniform) == pytest.approx(72)
    assert seen == [(0.8, 1.2)]
    handler = Handler(ApiUnavailable("later", retry_after=30))
    async with running(handler) as queue:
        queue.add(A)
        await asyncio.sleep(60)
    assert handler.starts() == [0, 31]


async def test_a_bug_costs_its_own_key_a_delay_and_the_others_nothing():
    handler = Handler(ValueError("bug"))
    async with running(handler, workers=1) as queue:
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(10)
    assert handler.runs == [(0, "a"), (1, "b"), (2, "a")]
    assert queue.told.results[0] == "bug"


async def test_a_handler_may_ask_to_look_again():
    handler = Handler(5, 0, None)
    async with running(handler) as queue:
        queue.add(A)
        await asyncio.sleep(20)
    assert handler.starts() == [0, 6, 7.001]


async def test_cancelling_stops_the_workers_where_they_are_and_forgets_everything():
    handler = Handler()
    async with running(handler) as queue:
        queue.add(A)
        queue.add(B, after_seconds=1)
        await asyncio.sleep(0.5)
    assert handler.at_once == 0
    assert queue.depth == 0
    await asyncio.sleep(10)
    assert len(handler.runs) == 1


async def test_keys_added_before_it_runs_are_not_lost():
    handler = Handler()
    queue = WorkQueue(Told(), uniform=lambda *_: 1.0)
    queue.add(A)
    queue.add(B, after_seconds=2)
    task = asyncio.create_task(queue.run(handler, 1))
    await asyncio.sleep(10)
    assert handler.runs == [(0, "a"), (2, "b")]
    task.cancel()


async def test_keys_that_wait_for_nothing_let_others_run_in_between():
    """A look at a thousand objects where nothing differs must not cost the leader its Lease."""
    turns = []

    async def handler(key):
        turns.append(key.name)
        return Requeue()

    async def renew():
        for _ in range(20):
            turns.append("renewal")
            await asyncio.sleep(0)

    async with running(handler, workers=1) as queue:
        for number in range(4):
            queue.add(node_key(NodeName(f"n{number}")))
        await renew()
    first, last = turns.index("n0"), turns.index("n3")
    assert turns[first:last].count("renewal") >= 3


async def test_lines_of_a_step_tell_its_object_and_a_trace_of_its_own():
    lines = []

    async def handler(_key):
        lines.append(add_fields("x"))
        return Requeue()

    async with running(handler, workers=1) as queue:
        queue.add(A)
        await asyncio.sleep(1)
        queue.add(A)
        await asyncio.sleep(1)
    assert all(line.startswith("x object=node:a trace=") for line in lines)
    assert len(set(lines)) == 2


def impatient(is_patient):
    """Who lets others go first does so for five seconds."""
    return WorkQueue(Told(), uniform=lambda *_: 1.0, is_patient=is_patient, patience_seconds=5.0)


async def test_patient_keys_let_others_go_first_but_not_for_ever():
    """A second for each key: the patient one's turn comes after five."""
    handler = Handler()
    queue = impatient(is_patient=lambda key: key == A)
    others = [node_key(NodeName(f"n{number}")) for number in range(6)]
    for key in (A, *others):
        queue.add(key)
    assert queue.depth == 7
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        working = group.create_task(queue.run(handler, 1))
        await asyncio.sleep(10)
        queue.add(A)
        await asyncio.sleep(0.5)
        working.cancel()
    names = [name for _, name in handler.runs]
    assert names == ["n0", "n1", "n2", "n3", "n4", "a", "n5", "a"]


async def test_patient_keys_that_are_due_take_turns_with_the_others():
    """Hundreds of nodes are to be written: a ModelCache waits for one of them, not for all."""
    handler = Handler()
    patient = {node_key(NodeName(f"p{number}")) for number in range(100)}
    queue = impatient(is_patient=patient.__contains__)
    for key in sorted(patient):
        queue.add(key)
    task = asyncio.create_task(queue.run(handler, 1))
    await asyncio.sleep(9.5)
    for number in range(3):
        queue.add(node_key(NodeName(f"n{number}")))
    await asyncio.sleep(7)
    task.cancel()
    later = [name[0] for _, name in handler.runs[10:]]
    assert later == list("npnpnpp")


async def test_urgent_keys_go_before_all_others_wherever_they_wait():
    handler = Handler()
    named = {name: node_key(NodeName(name)) for name in ("a", "b", "c", "d", "p")}
    queue = WorkQueue(Told(), uniform=lambda *_: 1.0, is_patient=lambda key: key == named["p"])
    for name in ("a", "p", "b", "c"):
        queue.add(named[name])
    queue.add(named["p"], is_urgent=True)
    queue.add(named["c"], after_seconds=60, is_urgent=True)
    queue.add(named["d"], after_seconds=2.5, is_urgent=True)
    assert queue.depth == 4
    task = asyncio.create_task(queue.run(handler, 1))
    await asyncio.sleep(0.5)
    queue.add(named["p"], is_urgent=True)
    await asyncio.sleep(12)
    task.cancel()
    assert [name for _, name in handler.runs] == ["p", "c", "p", "d", "a", "b"]


async def test_an_urgent_key_that_failed_comes_back_urgent():
    urgent, runs = node_key(NodeName("u")), []
    others = [node_key(NodeName(f"n{number}")) for number in range(9)]

    async def handle(key):
        runs.append(key.name)
        await asyncio.sleep(1)
        if key == urgent and runs.count(key.name) == 1:
            raise ApiUnavailable("away")
        return Requeue()

    queue = WorkQueue(Told(), uniform=lambda *_: 1.0, is_patient=lambda key: key == urgent)
    for key in others:
        queue.add(key)
    queue.add(urgent, is_urgent=True)
    task = asyncio.create_task(queue.run(handle, 1))
    await asyncio.sleep(5)
    task.cancel()
    assert runs[:4] == ["u", "n0", "u", "n1"]
