"""The connection to the node's agent through the volume's socket.

There is no thread: what the agent pushes waits in the socket and is read when somebody asks.
"""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import select
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from modelcache_api.device_layout import MAX_LAYOUT_BYTES
from modelcache_api.names import SocketReason, VolumeState
from modelcache_api.volume_holders import MOST_VERSIONS_HELD, Holder
from modelcache_api.volume_progress import VolumeProgress
from modelcache_api.volume_socket import (
    MAX_DESCRIPTORS,
    MAX_MESSAGE_BYTES,
    DeviceReady,
    FrameBuffer,
    Holders,
    IndexReady,
    Message,
    Refused,
    Request,
    RequestType,
    SocketProtocolError,
    State,
    Welcome,
    encode_hello,
    encode_request,
    parse_message,
)

Answer = TypeVar("Answer", IndexReady, DeviceReady)

_MOST_ADDRESS_BYTES: Final = 107
_READ_BYTES: Final = 65536
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
_ANSWER_SECONDS: Final = 10.0
_READY_SECONDS: Final = 1.0
# A card's memory is read back at some GB/s.
_DEVICE_SECONDS: Final = 120.0


class AgentSocket:
    """One connection. Only `index`, `device` and `next_holders` wait.

    Errors of any method are OSError or SocketProtocolError, and end the connection.
    """

    def __init__(self, path: Path, *, is_control: bool = False) -> None:
        """Connect and say hello. The agent's answer is heard by `drain`.

        `is_control`: nothing will be held; there is room for it beside the pod's other processes.
        """
        self.progress: VolumeProgress | None = None
        """The newest that was received; None before the first."""
        self._buffer = FrameBuffer(MAX_MESSAGE_BYTES)
        # Received, and of the message that was taken last: one read may bring several messages.
        self._descriptors: list[int] = []
        self._taken: list[int] = []
        self._next_id = 0
        self._drain_id: int | None = None
        self._is_welcome = False
        self._answer_until = time.monotonic() + _ANSWER_SECONDS
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with _address(path) as address:
                self._line.connect(address)
            self._say(encode_hello(is_control=is_control))
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Readable when there is news."""
        return self._line.fileno()

    def drain(self) -> None:
        """Take what has arrived."""
        while True:
            while self._take() is not None:
                pass
            try:
                self._receive(socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
        if self.progress is None and time.monotonic() > self._answer_until:
            raise TimeoutError("the agent does not answer")

    def demand(self) -> None:
        """Say that the content is wanted now. The answer is not waited for."""
        self._send("demand")

    def hold(self, uids: Iterable[str]) -> None:
        """Say that this process is attached, and which versions it uses from now on."""
        known = sorted(uid for uid in uids if uid)
        self._send("hold", Holder(os.getpid(), tuple(known[:MOST_VERSIONS_HELD])))

    def begin_draining(self) -> None:
        """Say that the pod takes no new work while this connection lasts."""
        self._drain_id = self._send("drain")

    def next_holders(self, seconds: float) -> tuple[Holder, ...] | None:
        """The processes that are attached, as soon as it is told anew; None if it is not in time.

        Raises:
            SocketProtocolError: the agent refuses; the connection stays.
        """
        deadline = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            while True:
                message = self._await_message(deadline)
                if isinstance(message, Refused) and message.id == self._drain_id:
                    raise SocketProtocolError(_reason(message), message.message, message.id)
                if isinstance(message, Holders):
                    return message.holders
        return None

    def index(self) -> mmap.mmap:
        """The index of the version, in memory that the node's clients share.

        Raises:
            SocketProtocolError: the agent refuses; the connection stays.
        """
        size_bytes = self._ask("index", IndexReady, _ANSWER_SECONDS).size_bytes
        descriptor = self._taken.pop()
        try:
            # Private, because older kernels refuse shared maps of sealed memory.
            return mmap.mmap(descriptor, size_bytes, mmap.MAP_PRIVATE, mmap.PROT_READ)
        except ValueError as error:
            raise OSError(str(error)) from error
        finally:
            os.close(descriptor)

    def device(self) -> tuple[bytes, list[int]]:
        """The layout of the version in GPU memory, and its extents' descriptors.

        The caller closes the descriptors. The agent reads all of it back before it answers.

        Raises:
            SocketProtocolError: the agent refuses; the connection stays.
        """
        self._ask("device", DeviceReady, _DEVICE_SECONDS)
        layout, *extents = self._taken
        self._taken.clear()
        try:
            return os.pread(layout, MAX_LAYOUT_BYTES + 1, 0), extents
        except OSError:
            _close_all(extents)
            raise
        finally:
            os.close(layout)

    def close(self) -> None:
        """End it."""
        _close_all(self._taken)
        _close_all(self._descriptors)
        self._line.close()

    def _ask(self, kind: RequestType, answer: type[Answer], seconds: float) -> Answer:
        """The answer to a request that is answered with descriptors, which are taken then."""
        self._await_ready(time.monotonic() + _READY_SECONDS)
        asked = self._send(kind)
        deadline = time.monotonic() + seconds
        while True:
            message = self._await_message(deadline)
            if isinstance(message, Refused) and message.id == asked:
                raise SocketProtocolError(_reason(message), message.message, asked)
            if isinstance(message, answer) and message.id == asked and self._taken:
                return message

    def _await_ready(self, deadline: float) -> None:
        """The model's folder appears a moment before the agent says so."""
        with contextlib.suppress(TimeoutError):
            while self.progress is None or self.progress.state is not VolumeState.READY:
                self._await_message(deadline)

    def _send(self, kind: RequestType, holder: Holder | None = None) -> int:
        self._next_id += 1
        self._say(encode_request(Request(kind, self._next_id, holder)))
        return self._next_id

    def _say(self, message: bytes) -> None:
        """Who is refused is hung up on at once; the reason waits to be read."""
        with contextlib.suppress(BrokenPipeError):
            self._line.sendall(message)

    def _await_message(self, deadline: float) -> Message:
        while (message := self._take()) is None:
            seconds = deadline - time.monotonic()
            if seconds <= 0 or not wait_readable(self._line.fileno(), seconds):
                raise TimeoutError("the agent does not answer")
            self._receive(socket.MSG_DONTWAIT)
        return message

    def _take(self) -> Message | None:
        """The next complete message that this version knows; descriptors of the last are closed."""
        while (body := self._buffer.take()) is not None:
            message, count = parse_message(body)
            _close_all(self._taken)
            self._taken, self._descriptors = self._descriptors[:count], self._descriptors[count:]
            if len(self._taken) < count:
                raise SocketProtocolError(
                    SocketReason.MALFORMED_MESSAGE,
                    f"{count} descriptors were told and {len(self._taken)} came",
                )
            match message:
                case None:
                    continue
                case Welcome():
                    self._is_welcome = True
                case State(progress) if self._is_welcome:
                    self.progress = progress
                case Refused(_, _, None):
                    raise SocketProtocolError(_reason(message), message.message)
            return message
        if self._descriptors and self._buffer.is_empty:
            # They come with the first byte of their message, and all messages are read.
            raise SocketProtocolError(
                SocketReason.MALFORMED_MESSAGE, "descriptors came that no message told of"
            )
        return None

    def _receive(self, flags: int) -> None:
        """Descriptors are closed on exec from their first instant, whatever other threads do."""
        data, ancillary, got, _sender = self._line.recvmsg(
            _READ_BYTES, _ANCILLARY_BYTES, flags | socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found = array.array("i")
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
                self._descriptors.extend(found)
        if got & socket.MSG_CTRUNC or len(self._descriptors) > MAX_DESCRIPTORS:
            raise SocketProtocolError(SocketReason.MALFORMED_MESSAGE, "too many descriptors came")
        if not data:
            raise ConnectionResetError("the agent has closed the connection")
        self._buffer.feed(data)


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def wait_readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read within the time; descriptors of any number."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(1, int(seconds * 1000))))


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """What the path is called where names of sockets are short."""
    if len(os.fsencode(path)) <= _MOST_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _reason(message: Refused) -> SocketReason:
    """Reasons of newer agents are refusals all the same."""
    try:
        return SocketReason(message.reason)
    except ValueError:
        return SocketReason.UNKNOWN_MESSAGE
