"""Thousands of hostile answers: never a wrong byte published, never a crash, a reason for each.

A failing case prints its seed; `FUZZ_SEED=<seed>` runs it alone.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import socket
import threading
import warnings
from collections import Counter
from pathlib import Path

import pytest

from fakes.fetch_world import Grants, LeapingClock, content_of, make_job, quick
from fakes.hostile_store import SECRET, Case, HostileStore
from fakes.store_world import opened, origin, read_tree, tree_of
from modelcache_agent.decide.transfer_plan import StallPolicy
from modelcache_agent.fetch import FetchEngine, address
from modelcache_api.limits import MAX_MESSAGE_LENGTH
from modelcache_api.manifest import make_content_manifest
from modelcache_api.names import Reason

CASES = 2000
FIRST_SEED = 1
AT_ONCE = 40
# Stalls are ended after a fifth of a second; whatever takes this long hangs.
CASE_SECONDS = 60.0
# A case has at most three files; each try of one may follow five redirects.
MAX_ANSWERS = 200
# One stream, so that a leap of the clock finds no other one in the middle of a transfer.
CONFIG = quick(streams=1, file_attempts=3, stall=StallPolicy(0.2, 1), response_timeout_seconds=5)


class Run:
    """One pass over many cases, against one store on disk."""

    def __init__(self, server: HostileStore, store) -> None:
        self.server = server
        self.store = store
        self.disk = asyncio.Lock()
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.published: dict[str, dict[str, bytes]] = {}

    async def take(self, seed: int) -> None:
        async with self.slots:
            case = Case.of(seed)
            self.server.serve(case)
            try:
                async with asyncio.timeout(CASE_SECONDS):
                    await self._fetch(case)
            except Exception as error:  # noqa: BLE001 - the seed must be told
                self.faults.append(f"{case}:\n  {type(error).__name__}: {error}")
            finally:
                self.server.forget(case)

    async def _fetch(self, case: Case) -> None:
        grants = Grants(case.sources, lambda path: self.server.url(case, path))
        grants.headers = {"Authorization": f"Bearer {SECRET}"}
        async with FetchEngine(grants, CONFIG, LeapingClock()) as engine:
            for number, paths in enumerate(case.jobs):
                await self._fetch_job(engine, case, f"case-{case.seed}-{number}", paths)
        assert case.asked.total() <= MAX_ANSWERS, f"{case.asked.total()} requests"

    async def _fetch_job(self, engine, case: Case, uid: str, paths: list[str]) -> None:
        folder = self.store.layout.partial / uid
        truth = {path: case.bodies[path] for path in paths}
        known = {path: content_of(path, body) for path, body in truth.items()}
        expected = known if case.is_pinned else None
        sources = {path: case.sources[path] for path in paths}
        outcome = await engine.fetch(make_job(sources, folder, expected=expected, uid=uid))
        for file in outcome.files:
            assert file.partial_path.parent == folder
            assert file.partial_path.read_bytes() == truth[file.path], f"{file.path}: wrong bytes"
            assert file.content == known[file.path]
        async with self.disk:
            if outcome.failure is None:
                self.outcomes["Ready"] += 1
                await asyncio.to_thread(self._publish, uid, outcome, truth)
            else:
                self.outcomes[outcome.failure.reason] += 1
                _check_failure(outcome.failure, case)
                await asyncio.to_thread(self.store.drop_partial, uid)

    def _publish(self, uid: str, outcome, truth: dict[str, bytes]) -> None:
        """What readers see under the version's name, from the moment it is there."""
        manifest = make_content_manifest(file.content for file in outcome.files)
        finished = {file.path: file.partial_path for file in outcome.files}
        digest = self.store.publish(manifest, finished, origin(uid))
        assert read_tree(tree_of(self.store.layout.root, digest)) == truth
        self.published[digest] = truth


def _check_failure(failure, case: Case) -> None:
    message = failure.message
    assert failure.reason in tuple(Reason)
    assert failure.path in case.sources
    assert message.isascii(), message
    assert message.isprintable(), message
    assert 0 < len(message) <= MAX_MESSAGE_LENGTH, message
    for secret in (SECRET[:12], "X-Amz", "://", "Bearer"):
        assert secret not in message, message
    assert "internal error" not in message, message
    pause = failure.retry_after_seconds
    assert pause is None or (math.isfinite(pause) and pause >= 0)


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def offline(monkeypatch):
    """No name server is asked; numbers and this machine are found as ever."""
    ask = address.socket.getaddrinfo

    def find(host, *args, flags=0, **named):
        host = "127.0.0.1" if host == "localhost" else host
        return ask(host, *args, flags=flags | socket.AI_NUMERICHOST, **named)

    monkeypatch.setattr(address.socket, "getaddrinfo", find)


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
async def test_two_thousand_hostile_answers(tmp_path: Path, caplog, record_property) -> None:
    alone = os.environ.get("FUZZ_SEED")
    seeds = [int(alone)] if alone else range(FIRST_SEED, FIRST_SEED + CASES)
    root = tmp_path / "store"
    gc.collect()
    files, threads = _open_files(), threading.active_count()
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always", ResourceWarning)
        with opened(root) as store:
            async with HostileStore() as server:
                run = Run(server, store)
                await asyncio.gather(*(run.take(seed) for seed in seeds))
                answers = server.answers
        gc.collect()
    record_property("outcomes", str(dict(run.outcomes)))
    print(f"\n{answers} answers in {len(seeds)} cases: {run.outcomes.most_common()}")
    assert not run.faults, "\n".join([f"{len(run.faults)} of {len(seeds)}", *run.faults[:20]])
    assert [r.getMessage() for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")] == []
    assert [str(w.message) for w in complaints if w.category is ResourceWarning] == []
    await asyncio.get_running_loop().shutdown_default_executor()
    assert threading.active_count() <= threads
    assert _open_files() <= files
    _check_store(root, run.published)
    if not alone:
        assert run.outcomes["Ready"] > CASES // 5
        assert len(run.outcomes) > 10
        assert answers > CASES


def _check_store(root: Path, published: dict[str, dict[str, bytes]]) -> None:
    """After a restart the store holds what was published, and nothing lies beside it."""
    assert list(root.parent.iterdir()) == [root]
    with opened(root) as store:
        survey = store.survey()
        assert {held.digest for held in survey.held if held.is_verified} == published.keys()
        assert not survey.partials
        assert not survey.quarantined
        assert {path.name for path in root.iterdir()} <= store.layout.known_names
    for digest, truth in published.items():
        assert read_tree(tree_of(root, digest)) == truth
