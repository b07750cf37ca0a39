"""One volume's socket: what its connections know of the pod, and what they say of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from modelcache_agent.decide.gpu.room import Stay
from modelcache_agent.decide.socket_rules import (
    DEVICE_PACE,
    USE_PACE,
    Turns,
    begin_turns,
    refuse_control,
    refuse_reader,
)
from modelcache_agent.socket.connection import Connection
from modelcache_agent.socket.counters import SocketCounters
from modelcache_agent.socket.indexes import Indexes, SealedIndex
from modelcache_agent.tiers.gpu.tier import Handover
from modelcache_agent.volume.folders import VolumeFolder
from modelcache_api.names import Reason, SocketReason, VolumeState
from modelcache_api.volume_holders import Holder
from modelcache_api.volume_progress import VolumeProgress
from modelcache_api.volume_socket import SocketProtocolError

HandOver = Callable[[str, str, str], Awaitable[Handover | Stay]]
"""For a volume's key, its version's uid and digest: GPU memory, or why there is none."""


@dataclass(slots=True)
class Door:
    """The `Pod` of a volume's connections. What a connection says ends with it."""

    folder: VolumeFolder
    listener: socket.socket
    shown: VolumeProgress
    indexes: Indexes
    counters: SocketCounters
    on_demand: Callable[[Door], None]
    on_use: Callable[[Door], None]
    monotonic: Callable[[], float]
    hand_over: HandOver | None = None
    connections: set[Connection] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    demanded_at: float | None = None
    is_use_due: bool = False
    """The loop is to hear later that other versions are used."""
    _kinds: dict[Connection, bool] = field(default_factory=dict)
    """Those that have said hello; True for control."""
    _held: dict[Connection, Holder] = field(default_factory=dict)
    _draining: set[Connection] = field(default_factory=set)
    _uses: Turns = field(init=False)
    _devices: Turns = field(init=False)

    def __post_init__(self) -> None:
        """Begin with all turns."""
        now = self.monotonic()
        self._uses, self._devices = begin_turns(USE_PACE, now), begin_turns(DEVICE_PACE, now)

    @property
    def progress(self) -> VolumeProgress:
        """What is shown, and whether the pod takes new work."""
        return replace(self.shown, is_draining=bool(self._draining))

    @property
    def used(self) -> frozenset[str]:
        """The uids of versions that processes say they use, besides the volume's own."""
        said = {uid for holder in self._held.values() for uid in holder.versions}
        return frozenset(said - {self.shown.version_uid})

    @property
    def holders(self) -> tuple[Holder, ...]:
        """The processes that are attached, with the names of their versions."""
        names = {version.uid: version.name or version.uid for version in self.shown.versions}
        found = (
            Holder(holder.pid, tuple(names.get(uid, uid) for uid in holder.versions))
            for holder in self._held.values()
        )
        return tuple(sorted(found, key=lambda holder: (holder.pid, holder.versions)))

    def show(self, progress: VolumeProgress) -> None:
        """Tell everybody who is connected, if it is news."""
        if progress != self.shown:
            self.shown = progress
            self._tell_all()

    def admit(self, connection: Connection, *, is_control: bool) -> None:
        """Take it as what it says it is."""
        of_pod = sum(kind is is_control for kind in self._kinds.values())
        counters = self.counters
        refusal = (
            refuse_control(of_pod, counters.controls)
            if is_control
            else refuse_reader(of_pod, counters.readers)
        )
        if refusal is not None:
            raise SocketProtocolError(SocketReason.TOO_MANY_CONNECTIONS, refusal)
        self._kinds[connection] = is_control
        self._count(1, is_control=is_control)

    def note_demand(self) -> None:
        """A process wants the content now."""
        self.on_demand(self)

    def note_hold(self, connection: Connection, holder: Holder) -> None:
        """A process uses these versions from now on."""
        before = self.used
        self.counters.attached += connection not in self._held
        self._held[connection] = holder
        self._note_change(before)

    def begin_draining(self, connection: Connection) -> None:
        """The pod takes no new work while the connection lasts."""
        self._draining.add(connection)
        self._tell_all()

    def forget(self, connection: Connection) -> None:
        """The connection has ended."""
        before = self.used
        self.connections.discard(connection)
        if (is_control := self._kinds.pop(connection, None)) is not None:
            self._count(-1, is_control=is_control)
        was_attached = self._held.pop(connection, None) is not None
        self.counters.attached -= was_attached
        if was_attached or connection in self._draining:
            self._draining.discard(connection)
            self._note_change(before)

    async def index(self) -> SealedIndex:
        """The index of what is shown."""
        shown = self.shown
        if shown.state is not VolumeState.READY or not shown.content_digest:
            raise SocketProtocolError(
                SocketReason.NOT_COMPLETE, "the volume shows no content yet: wait for it"
            )
        return await self.indexes.get(shown.content_digest, self.folder.model)

    async def device(self) -> Handover:
        """GPU memory with the volume's own version, for this pod alone."""
        self._devices, seconds = self._devices.take(self.monotonic())
        if seconds:
            raise SocketProtocolError(
                SocketReason.TOO_MANY_REQUESTS,
                f"this pod asks for GPU memory too often: ask again in {seconds:.1f} s",
            )
        found: Handover | Stay = Stay(Reason.GPU_UNAVAILABLE, "this node has no GPU tier")
        if self.hand_over is not None:
            shown = self.shown
            found = await self.hand_over(self.folder.key, shown.version_uid, shown.content_digest)
        if isinstance(found, Stay):
            raise SocketProtocolError(
                SocketReason.NOT_ON_DEVICE, f"{found.reason}: {found.message}"
            )
        return found

    def wait_to_tell_use(self) -> float:
        """Seconds until the loop may hear of other uses; 0: now, and it is told."""
        self._uses, seconds = self._uses.take(self.monotonic())
        return seconds

    def _count(self, change: int, *, is_control: bool) -> None:
        if is_control:
            self.counters.controls += change
        else:
            self.counters.readers += change

    def _note_change(self, before: frozenset[str]) -> None:
        self._tell_all()
        if self.used != before:
            self.on_use(self)

    def _tell_all(self) -> None:
        for connection in self.connections:
            connection.tell()
