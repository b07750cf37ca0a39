"""Agents that are killed, and sources that stop where a test wants them to."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from dataclasses import dataclass, field

from fakes.range_server import Served

BLOCK = 64 * 1024


@dataclass
class Gate:
    """A source that stops before an offset until it is told to hang up."""

    body: bytes
    etag: str
    stop_at: int | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    hang_up: threading.Event = field(default_factory=threading.Event)

    def close(self, stop_at: int | None) -> None:
        self.stop_at = stop_at
        self.reached.clear()
        self.hang_up.clear()

    @property
    def served(self) -> Served:
        return Served(len(self.body), f'"{self.etag}"', self.read)

    def read(self, start, end):
        if self.stop_at is not None and start >= self.stop_at:
            self.reached.set()
            self.hang_up.wait(30)
            raise ConnectionAbortedError
        end = min(end, start + BLOCK)
        if self.stop_at is not None and start < self.stop_at:
            end = min(end, self.stop_at)
        return memoryview(self.body)[start:end]


def kill_agent(bench, entry, is_time, step=lambda _name: None, options=("--streams=1",)) -> None:
    """Run an agent in a process of its own and kill it at that time, or at a step of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            bench.cluster.on_labels = lambda _, keys: keys and (bench.root.parent / "label").touch()
            asyncio.run(live(bench, entry, step, options))
        finally:
            os._exit(70)
    deadline = time.monotonic() + 60
    while not is_time() and time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert (status, time.monotonic() < deadline) == (-signal.SIGKILL, True)


async def live(bench, entry, step, options) -> None:
    bench.cluster.want(entry)
    async with bench.started(*options, step=step):
        await asyncio.sleep(60)


def gate_of(bench, uid) -> Gate:
    version = bench.grants.versions[uid]
    gate = Gate(version.bodies["model.safetensors"], version.etag)
    bench.objects.objects[f"{uid}/model.safetensors"] = gate.served
    return gate
