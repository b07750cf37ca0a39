"""One process of a pod on the line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Final, Protocol

from modelcache_agent.decide.socket_rules import (
    HELLO_SECONDS,
    MESSAGE_SECONDS,
    REQUEST_PAUSE_SECONDS,
)
from modelcache_agent.socket.counters import SocketCounters
from modelcache_agent.socket.indexes import SealedIndex, seal_bytes
from modelcache_agent.tiers.gpu.tier import Handover
from modelcache_api.device_layout import encode_layout
from modelcache_api.names import SocketReason
from modelcache_api.volume_holders import Holder
from modelcache_api.volume_progress import VolumeProgress
from modelcache_api.volume_socket import (
    CONTROL_REQUESTS,
    MAX_REQUEST_BYTES,
    DeviceReady,
    Done,
    FrameBuffer,
    Holders,
    IndexReady,
    Message,
    Refused,
    Request,
    SocketProtocolError,
    State,
    Welcome,
    choose_version,
    encode_message,
    parse_hello,
    parse_request,
)

_READ_BYTES: Final = 4096


class Pod(Protocol):
    """What a connection knows of the volume it lies in."""

    @property
    def progress(self) -> VolumeProgress:
        """What the pod may know now."""
        ...

    def admit(self, connection: Connection, *, is_control: bool) -> None:
        """Take it as what it says it is. Raises SocketProtocolError: there are enough of them."""
        ...

    def note_demand(self) -> None:
        """A process wants the content now."""
        ...

    def note_hold(self, connection: Connection, holder: Holder) -> None:
        """A process uses these versions from now on."""
        ...

    def begin_draining(self, connection: Connection) -> None:
        """The pod takes no new work while the connection lasts."""
        ...

    @property
    def holders(self) -> tuple[Holder, ...]:
        """The processes that are attached."""
        ...

    async def index(self) -> SealedIndex:
        """The index of what is shown. Raises SocketProtocolError."""
        ...

    async def device(self) -> Handover:
        """GPU memory with what is shown; the caller closes. Raises SocketProtocolError."""
        ...


class Connection:
    """Says what changes and answers what is asked, until either end goes.

    A client that does not take a message in time, or does not finish one, is cut off. The line is
    closed by whoever opened it.
    """

    def __init__(self, line: socket.socket, pod: Pod, counters: SocketCounters) -> None:
        self._line = line
        self._pod = pod
        self._counters = counters
        self._buffer = FrameBuffer(MAX_REQUEST_BYTES)
        self._news = asyncio.Event()
        self._sending = asyncio.Lock()
        self._drain_id: int | None = None
        self._is_control = False

    def tell(self) -> None:
        """The pod's progress, or who is attached, has changed."""
        self._news.set()

    async def serve(self) -> None:
        """Until the client goes or has to go."""
        try:
            await self._greet()
            self._news.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._push(), name="push")
                tasks.create_task(self._answer(), name="answer")
        except* SocketProtocolError as group:
            self._say_goodbye(_first(group))
        except* TimeoutError:
            self._say_goodbye(
                SocketProtocolError(SocketReason.TOO_SLOW, "a message was not done in time")
            )
        except* OSError:
            # The client went. Its requests go with it.
            pass

    async def _greet(self) -> None:
        async with asyncio.timeout(HELLO_SECONDS):
            hello = parse_hello(await self._receive())
        version = choose_version(hello)
        self._pod.admit(self, is_control=hello.is_control)
        self._is_control = hello.is_control
        await self._send(Welcome(version))

    async def _push(self) -> None:
        """What is newest. Changes that come faster than the client reads become one."""
        told: VolumeProgress | None = None
        told_holders: tuple[Holder, ...] | None = None
        while True:
            await self._news.wait()
            self._news.clear()
            if self._pod.progress != told:
                told = self._pod.progress
                await self._send(State(told))
            if self._drain_id is not None and self._pod.holders != told_holders:
                told_holders = self._pod.holders
                await self._send(Holders(self._drain_id, told_holders))

    async def _answer(self) -> None:
        while True:
            try:
                request = parse_request(await self._receive())
                await self._carry_out(request)
            except SocketProtocolError as error:
                if error.request_id is None:
                    raise
                self._counters.refusals[error.reason] += 1
                await self._send(Refused(error.reason, error.message, error.request_id))
            await asyncio.sleep(REQUEST_PAUSE_SECONDS)

    async def _carry_out(self, request: Request) -> None:
        if self._is_control and request.type not in CONTROL_REQUESTS:
            raise SocketProtocolError(
                SocketReason.CONTROL_ONLY,
                f"this connection is for control alone and asks no {request.type}: say hello "
                "without `control`",
                request.id,
            )
        if request.type == "drain":
            self._drain_id = request.id
            self._pod.begin_draining(self)
            return
        if request.type in {"demand", "hold"}:
            if request.holder is None:
                self._pod.note_demand()
            else:
                self._pod.note_hold(self, request.holder)
            await self._send(Done(request.id))
            return
        try:
            if request.type == "device":
                await self._give_device(request, await self._pod.device())
                return
            index = await self._pod.index()
        except SocketProtocolError as error:
            raise SocketProtocolError(error.reason, error.message, request.id) from error
        descriptor = index.reopen()
        try:
            await self._send(IndexReady(request.id, index.size_bytes), (descriptor,))
        finally:
            os.close(descriptor)

    async def _give_device(self, request: Request, given: Handover) -> None:
        """The layout as a descriptor, because it may be larger than a message, then the extents."""
        descriptors = list(given.descriptors)
        try:
            layout = encode_layout(given.layout)
            descriptors.insert(0, seal_bytes(layout))
            ready = DeviceReady(request.id, len(layout), len(descriptors))
            await self._send(ready, descriptors)
            self._counters.devices += 1
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    async def _receive(self) -> bytes:
        """One body. Between two messages a client may be silent for ever."""
        loop = asyncio.get_running_loop()
        ends_at: float | None = None
        while (body := self._buffer.take()) is None:
            if ends_at is None and not self._buffer.is_empty:
                ends_at = loop.time() + MESSAGE_SECONDS
            async with asyncio.timeout_at(ends_at):
                self._buffer.feed(await self._read(loop))
        return body

    async def _read(self, loop: asyncio.AbstractEventLoop) -> bytes:
        # Without room for them, the kernel closes descriptors that a client sends.
        data = await loop.sock_recv(self._line, _READ_BYTES)
        if not data:
            raise ConnectionResetError
        return data

    async def _send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        loop = asyncio.get_running_loop()
        frame = encode_message(message)
        async with asyncio.timeout(MESSAGE_SECONDS), self._sending:
            if descriptors:
                frame = frame[await self._send_descriptors(frame, descriptors) :]
            await loop.sock_sendall(self._line, frame)

    async def _send_descriptors(self, frame: bytes, descriptors: Sequence[int]) -> int:
        """Bytes that went with them."""
        while True:
            try:
                return socket.send_fds(self._line, [frame], descriptors)
            except BlockingIOError:
                await _until_writable(self._line)

    def _say_goodbye(self, error: SocketProtocolError) -> None:
        self._counters.refusals[error.reason] += 1
        send_now(self._line, Refused(error.reason, error.message))


def send_now(line: socket.socket, message: Message) -> None:
    """Last words, for whoever has room for them."""
    with contextlib.suppress(OSError):
        line.send(encode_message(message))


async def until_readable(line: socket.socket) -> None:
    """Until something can be taken from it."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(line, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(line)


async def _until_writable(line: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(line, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(line)


def _first(group: BaseExceptionGroup[SocketProtocolError]) -> SocketProtocolError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
