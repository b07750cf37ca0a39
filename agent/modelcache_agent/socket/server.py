"""The sockets of all volumes of a node, kept in step with the volumes."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Final

from modelcache_agent.background import BackgroundTasks
from modelcache_agent.decide.socket_rules import (
    ACCEPT_PAUSE_SECONDS,
    is_new_demand,
    refuse_connection,
)
from modelcache_agent.ports.clock import Clock
from modelcache_agent.socket.connection import Connection, send_now, until_readable
from modelcache_agent.socket.counters import SocketCounters
from modelcache_agent.socket.door import Door, HandOver
from modelcache_agent.socket.indexes import Indexes
from modelcache_agent.socket.listening import open_listener
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_agent.volume.folders import VolumeFolder
from modelcache_api.names import SocketReason, VolumeState
from modelcache_api.volume_progress import VolumeProgress
from modelcache_api.volume_socket import Refused

_log = logging.getLogger(__name__)
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
# Descriptors have run out: connections wait in the kernel.
_AFTER_ERROR_SECONDS: Final = 1.0

Demanded = Callable[[VolumeProgress], Awaitable[None]]


class VolumeSockets:
    """Opens, serves and closes. A volume that is refused has no socket: there is nothing to say.

    `on_demand` is called with what a volume shows, once a minute at most for each; `on_use` when
    the processes of a pod use other versions than before: at once at first, and at a pace if that
    goes on; what they use last is always looked at. `hand_over` is set where the node has a
    GPU tier.
    """

    def __init__(
        self,
        pods: Path,
        thread: StoreThread,
        tasks: BackgroundTasks,
        clock: Clock,
        on_demand: Demanded,
        on_use: Callable[[], None] = lambda: None,
    ) -> None:
        self._pods = pods
        self._thread = thread
        self._tasks = tasks
        self._clock = clock
        self._on_demand = on_demand
        self._on_use = on_use
        self._doors: dict[str, Door] = {}
        self.hand_over: HandOver | None = None
        self.counters = SocketCounters()
        self.indexes = Indexes(self.counters)

    async def show(self, shown: Mapping[str, VolumeProgress]) -> None:
        """From now on this is what each pod may know; volumes that are not named are gone."""
        wanted = {key: p for key, p in shown.items() if p.state is not VolumeState.REFUSED}
        for key in self._doors.keys() - wanted.keys():
            self._close(self._doors.pop(key))
        for key, progress in wanted.items():
            door = self._doors.get(key) or await self._open(key, progress)
            if door is not None:
                door.show(progress)
        self.indexes.keep(progress.content_digest for progress in wanted.values())

    def uses(self) -> Mapping[str, frozenset[str]]:
        """The uids of further versions that processes say they use, by the volume's key."""
        return {key: door.used for key, door in self._doors.items()}

    def close(self) -> None:
        """Close all of them. Their names stay, for the next agent to replace."""
        for door in self._doors.values():
            self._close(door)
        self._doors.clear()
        self.indexes.keep(())

    def note_demand(self, door: Door) -> None:
        """A process of this pod wants its content now."""
        self.counters.demands += 1
        now = self._clock.monotonic()
        if is_new_demand(door.demanded_at, now):
            door.demanded_at = now
            self._tasks.start("demand", self._carry_demand(door.progress))

    def note_use(self, door: Door) -> None:
        """The processes of this pod use other versions than before."""
        if not door.is_use_due:
            self._tell_use(door)

    def _tell_use(self, door: Door) -> None:
        seconds = door.wait_to_tell_use()
        door.is_use_due = seconds > 0
        if door.is_use_due:
            asyncio.get_running_loop().call_later(seconds, self._tell_use, door)
        else:
            self._on_use()

    async def _carry_demand(self, progress: VolumeProgress) -> None:
        try:
            await self._on_demand(progress)
        except OSError as error:
            _log.warning("a demand for %s is not remembered: %s", progress.cache, error.strerror)

    async def _open(self, key: str, progress: VolumeProgress) -> Door | None:
        folder = VolumeFolder(self._pods / key)
        try:
            listener = await self._thread.call(open_listener, folder)
        except TimeoutError:
            raise
        except OSError as error:
            if error.errno not in _GONE:
                self.counters.refusals[SocketReason.STORE_ERROR] += 1
                _log.warning("volume=%s has no socket: %s", key, error.strerror)
            return None
        door = self._doors[key] = Door(
            *(folder, listener, progress, self.indexes, self.counters),
            on_demand=self.note_demand,
            on_use=self.note_use,
            monotonic=self._clock.monotonic,
            hand_over=self.hand_over,
        )
        self._start(door, self._accept(door))
        return door

    def _start(self, door: Door, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._tasks.start("socket", work)
        door.tasks.add(task)
        task.add_done_callback(door.tasks.discard)
        return task

    def _close(self, door: Door) -> None:
        for task in tuple(door.tasks):
            task.cancel()
        door.listener.close()

    async def _accept(self, door: Door) -> None:
        while True:
            await until_readable(door.listener)
            try:
                line, _address = door.listener.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                _log.warning("volume=%s: nobody can connect: %s", door.folder.key, error.strerror)
                await asyncio.sleep(_AFTER_ERROR_SECONDS)
                continue
            line.setblocking(False)  # noqa: FBT003 - the standard library's own way
            self._admit(door, line)
            await asyncio.sleep(ACCEPT_PAUSE_SECONDS)

    def _admit(self, door: Door, line: socket.socket) -> None:
        self.counters.accepted += 1
        refusal = refuse_connection(len(door.connections), self.counters.connections)
        if refusal is None:
            self._serve(door, line)
            return
        self.counters.refusals[SocketReason.TOO_MANY_CONNECTIONS] += 1
        send_now(line, Refused(SocketReason.TOO_MANY_CONNECTIONS, refusal))
        line.close()

    def _serve(self, door: Door, line: socket.socket) -> None:
        connection = Connection(line, door, self.counters)
        door.connections.add(connection)
        self.counters.connections += 1

        def end(_task: asyncio.Task[None]) -> None:
            # Also of a task that was cancelled before it began.
            line.close()
            door.forget(connection)
            self.counters.connections -= 1

        self._start(door, connection.serve()).add_done_callback(end)
