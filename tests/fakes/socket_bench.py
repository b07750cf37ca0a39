"""The sockets of a node's volumes alone, in a thread of their own: the rest of an agent is away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from modelcache_agent.adapters.system_clock import SystemClock
from modelcache_agent.background import BackgroundTasks
from modelcache_agent.socket.server import VolumeSockets
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_agent.volume.folders import VolumeFolder
from modelcache_api.names import Reason, VolumeState
from modelcache_api.volume_progress import VolumeProgress, encode_progress

READY = VolumeProgress(
    "search/minilm", VolumeState.READY, Reason.CACHED, percent=100, version_uid="v1",
    content_digest="sha256:1",
)  # fmt: skip


@dataclass
class SocketBench:
    """`show` is what the agent's loop does at the end of each turn."""

    pods: Path
    loop: asyncio.AbstractEventLoop
    demands: list[VolumeProgress] = field(default_factory=list)
    looks: list[dict[str, frozenset[str]]] = field(default_factory=list)
    """What was in use each time that the loop was told to look."""
    shown: dict[str, VolumeProgress] = field(default_factory=dict)
    sockets: VolumeSockets | None = None
    thread: StoreThread = field(default_factory=StoreThread)

    def add(self, key: str = "11111111-1111-1111-1111-111111111111/v", **changes) -> VolumeFolder:
        """A volume that shows a model, with its socket."""
        folder = VolumeFolder(self.pods / key)
        folder.model.mkdir(parents=True, exist_ok=True)
        self.show(key, replace(READY, **changes))
        return folder

    def show(self, key: str, progress: VolumeProgress) -> None:
        self.shown[key] = progress
        VolumeFolder(self.pods / key).status.write_bytes(encode_progress(progress))
        self.run(self.sockets.show(self.shown))

    def remove(self, key: str) -> None:
        del self.shown[key]
        self.run(self.sockets.show(self.shown))

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    @property
    def counters(self):
        return self.sockets.counters

    async def begin(self) -> None:
        async def on_demand(progress: VolumeProgress) -> None:
            self.demands.append(progress)

        self.tasks = BackgroundTasks()
        self.sockets = VolumeSockets(
            *(self.pods, self.thread, self.tasks, SystemClock(), on_demand),
            on_use=lambda: self.looks.append(dict(self.sockets.uses())),
        )

    async def end(self) -> None:
        self.sockets.close()
        await self.tasks.close(5)
        await self.thread.close(5)


@contextmanager
def open_socket_bench(pods: Path) -> Iterator[SocketBench]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="sockets")
    thread.start()
    bench = SocketBench(pods, loop)
    bench.run(bench.begin())
    try:
        yield bench
    finally:
        bench.run(bench.end())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
