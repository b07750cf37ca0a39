"""What a pod's process and its node's agent say to each other over the volume's socket.

A frame is four bytes of length, little-endian, and so many bytes of one JSON object with a `type`.
Both ends bound what they take before they take it. Unknown fields mean nothing; an unknown type of
request is refused by itself, an unknown type of message is passed over, so either end may be newer.
A message may state `descriptors`: so many travel with its frame (SCM_RIGHTS).

    client                           agent
    hello {versions, control} ->     control: it holds nothing, and asks for no more than control
                              <-     welcome {version}
                              <-     state {progress}      at once, and again whenever it changes
    demand {id}               ->
                              <-     done {id}
    index {id}                ->
                              <-     index {id, sizeBytes, descriptors: 1}
    hold {id, pid, versions}  ->     in place of what was held before; ends with the connection
                              <-     done {id}
    drain {id}                ->     the pod takes no new work while this connection lasts
                              <-     holders {id, holders: [{pid, versions}]}     and at each change
    device {id}               ->
                              <-     device {id, sizeBytes, descriptors: 1 + extents}
    (anything)                ->
                              <-     refused {id, reason, message}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeGuard

from modelcache_api.device_layout import MOST_EXTENTS
from modelcache_api.names import SocketReason
from modelcache_api.volume_holders import BadHolderError, Holder, holder_document, read_holder
from modelcache_api.volume_progress import (
    MAX_PROGRESS_BYTES,
    VolumeProgress,
    progress_document,
    read_progress,
)

PROTOCOL_VERSIONS: Final = (1,)
"""Those that this code speaks, the newest first."""
MAX_REQUEST_BYTES: Final = 4096
"""Body of a client's message."""
MAX_MESSAGE_BYTES: Final = MAX_PROGRESS_BYTES + 1024
"""Body of an agent's message."""
MAX_DESCRIPTORS: Final = 1 + MOST_EXTENTS
"""With one message."""
_LENGTH_BYTES: Final = 4
_MOST_VERSIONS: Final = 16
_HIGHEST_ID: Final = 2**31 - 1
_MOST_WORDS: Final = 512

RequestType = Literal["demand", "index", "hold", "drain", "device"]
CONTROL_REQUESTS: Final[frozenset[RequestType]] = frozenset({"demand", "drain"})
"""What a connection for control alone may ask."""
LONGEST_RETURN_SECONDS: Final = 7.5
"""A client that has lost its agent tries again after so long at most, when it is called."""


class SocketProtocolError(Exception):
    """A message that cannot be taken. `id` is that of the request where it is known."""

    def __init__(self, reason: SocketReason, message: str, request_id: int | None = None) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.request_id = request_id


@dataclass(frozen=True, slots=True)
class Hello:
    """The client's first message. `is_control`: the connection holds nothing, as that of a drain.

    Such connections have room of their own, beside those of the pod's other processes.
    """

    versions: tuple[int, ...]
    is_control: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """`demand`: the content is wanted now. `index`: the headers of its files, as a descriptor.

    `hold`: who asks uses these versions from now on. `drain`: the pod takes no new work.
    `device`: descriptors of the GPU memory that holds it (experimental).
    """

    type: RequestType
    id: int
    holder: Holder | None = None


@dataclass(frozen=True, slots=True)
class Welcome:
    """The agent's first message: the version that is spoken."""

    version: int


@dataclass(frozen=True, slots=True)
class State:
    """What status.json says."""

    progress: VolumeProgress


@dataclass(frozen=True, slots=True)
class Done:
    """A demand, or what is held, was heard."""

    id: int


@dataclass(frozen=True, slots=True)
class IndexReady:
    """The message comes with a descriptor of so many sealed bytes."""

    id: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Holders:
    """The processes of the pod that are attached, for who drains it."""

    id: int
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class DeviceReady:
    """A descriptor of the sealed layout of so many bytes, then those of its extents, in order."""

    id: int
    size_bytes: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Why not. Without an id the agent closes the connection."""

    reason: str
    message: str
    id: int | None = None


Message = Welcome | State | Done | IndexReady | Holders | DeviceReady | Refused


class FrameBuffer:
    """Bytes as they arrive become bodies of frames. Holds one frame and what was fed at most."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._data = bytearray()

    @property
    def is_empty(self) -> bool:
        """True between two frames."""
        return not self._data

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self._data += data

    def take(self) -> bytes | None:
        """The next body; None if it is not complete.

        Raises:
            SocketProtocolError: it would be too large, said before it is read.
        """
        if len(self._data) < _LENGTH_BYTES:
            return None
        length = int.from_bytes(self._data[:_LENGTH_BYTES], "little")
        if length > self._most:
            raise SocketProtocolError(
                SocketReason.MESSAGE_TOO_LARGE,
                f"a message of {length} bytes; at most {self._most} are taken",
            )
        end = _LENGTH_BYTES + length
        if len(self._data) < end:
            return None
        body = bytes(self._data[_LENGTH_BYTES:end])
        del self._data[:end]
        return body


def encode_frame(document: Mapping[str, Any]) -> bytes:
    """The frame of a message."""
    body = json.dumps(document, separators=(",", ":")).encode()
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


def encode_hello(versions: Sequence[int] = PROTOCOL_VERSIONS, *, is_control: bool = False) -> bytes:
    """The client's first frame."""
    control = {"control": True} if is_control else {}
    return encode_frame({"type": "hello", "versions": list(versions), **control})


def encode_request(request: Request) -> bytes:
    """A client's frame."""
    more = {} if request.holder is None else holder_document(request.holder)
    return encode_frame({"type": request.type, "id": request.id, **more})


def encode_message(message: Message) -> bytes:
    """An agent's frame."""
    match message:
        case Welcome(version):
            return encode_frame({"type": "welcome", "version": version})
        case State(progress):
            return encode_frame({"type": "state", "progress": progress_document(progress)})
        case Done(request_id):
            return encode_frame({"type": "done", "id": request_id})
        case IndexReady() | DeviceReady():
            return encode_frame(_describe_memory(message))
        case Holders(request_id, holders):
            rows = [holder_document(holder) for holder in holders]
            return encode_frame({"type": "holders", "id": request_id, "holders": rows})
        case Refused(reason, text, request_id):
            words = {"reason": reason, "message": text[:_MOST_WORDS], "id": request_id}
            return encode_frame({"type": "refused", **words})


def _describe_memory(message: IndexReady | DeviceReady) -> dict[str, Any]:
    """A message that comes with descriptors."""
    kind, count = (
        ("device", message.descriptors) if isinstance(message, DeviceReady) else ("index", 1)
    )
    return {
        "type": kind,
        "id": message.id,
        "sizeBytes": message.size_bytes,
        "descriptors": count,
    }


def parse_hello(body: bytes) -> Hello:
    """The client's first message.

    Raises:
        SocketProtocolError: it is none.
    """
    document = _parse(body)
    if document["type"] != "hello":
        raise SocketProtocolError(SocketReason.NO_HELLO, "the first message must be hello")
    versions = document.get("versions")
    if (
        not isinstance(versions, list)
        or len(versions) > _MOST_VERSIONS
        or not all(_is_count(version) for version in versions)
    ):
        raise SocketProtocolError(
            SocketReason.MALFORMED_MESSAGE, "hello needs `versions`, a short list of numbers"
        )
    is_control = document.get("control", False)
    if not isinstance(is_control, bool):
        raise SocketProtocolError(
            SocketReason.MALFORMED_MESSAGE, "`control` of hello must be true or false"
        )
    return Hello(tuple(versions), is_control)


def choose_version(hello: Hello) -> int:
    """The newest version that both speak.

    Raises:
        SocketProtocolError: there is none.
    """
    common = [version for version in PROTOCOL_VERSIONS if version in hello.versions]
    if not common:
        spoken = ", ".join(str(version) for version in PROTOCOL_VERSIONS)
        raise SocketProtocolError(
            SocketReason.UNSUPPORTED_VERSION,
            f"this node's agent speaks protocol version {spoken}: use a library of its release",
        )
    return common[0]


def parse_request(body: bytes) -> Request:
    """A client's message after hello.

    Raises:
        SocketProtocolError: it is none. With an id, the connection may go on.
    """
    document = _parse(body)
    request_id = document.get("id")
    if not _is_count(request_id):
        raise SocketProtocolError(
            SocketReason.MALFORMED_MESSAGE, f"`id` must be a whole number from 0 to {_HIGHEST_ID}"
        )
    match document["type"]:
        case "demand" | "index" | "drain" | "device" as kind:
            return Request(kind, request_id)
        case "hold":
            return Request("hold", request_id, _read_held(document, request_id))
    raise SocketProtocolError(
        SocketReason.UNKNOWN_MESSAGE, "this node's agent knows no such request", request_id
    )


def parse_message(body: bytes) -> tuple[Message | None, int]:
    """An agent's message, None if it is of a type of the future, and its descriptors.

    Raises:
        SocketProtocolError: it is none.
    """
    document = _parse(body)
    count = document.get("descriptors", 0)
    if not _is_count(count) or count > MAX_DESCRIPTORS:
        raise SocketProtocolError(SocketReason.MALFORMED_MESSAGE, "`descriptors` is no such count")
    try:
        return _read_message(document), count
    except (KeyError, TypeError, ValueError):
        raise SocketProtocolError(
            SocketReason.MALFORMED_MESSAGE, f"a message {document['type'][:40]!r} lacks a field"
        ) from None


def _read_message(document: Mapping[str, Any]) -> Message | None:
    match document["type"]:
        case "welcome":
            return Welcome(_count(document["version"]))
        case "state":
            progress = read_progress(document["progress"])
            if progress is None:
                raise ValueError("no progress")
            return State(progress)
        case "done" | "index" | "device" | "holders":
            return _read_answer(document, _count(document["id"]))
        case "refused":
            given = document["id"]
            number = None if given is None else _count(given)
            return Refused(str(document["reason"]), str(document["message"]), number)
    return None


def _read_answer(document: Mapping[str, Any], request_id: int) -> Message:
    match document["type"]:
        case "index":
            return IndexReady(request_id, _count(document["sizeBytes"]))
        case "device":
            size, count = _count(document["sizeBytes"]), _count(document["descriptors"])
            return DeviceReady(request_id, size, count)
        case "holders":
            return Holders(request_id, tuple(read_holder(row) for row in document["holders"]))
    return Done(request_id)


def _read_held(document: Mapping[str, Any], request_id: int) -> Holder:
    try:
        return read_holder(document)
    except BadHolderError as error:
        raise SocketProtocolError(SocketReason.MALFORMED_MESSAGE, str(error), request_id) from None


def _parse(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise SocketProtocolError(SocketReason.MALFORMED_MESSAGE, "it is not JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("type"), str):
        raise SocketProtocolError(
            SocketReason.MALFORMED_MESSAGE, "it must be an object with a `type`"
        )
    return document


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _HIGHEST_ID


def _count(value: object) -> int:
    if not _is_count(value):
        raise ValueError("no count")
    return value
