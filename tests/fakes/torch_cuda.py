"""A stand-in for torch's part of CUDA, below `modelcache.device_copy`; all other torch is real.

Memory of the card is the host's. A copy runs as late as CUDA may run it, when somebody waits for
it, so that a buffer which is filled again too early gives wrong bytes, every time.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

_current = threading.local()


class CardTensor(torch.Tensor):
    """Memory of the card: what is copied into it inside of `cuda.stream` waits there."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.copy_:
            assert kwargs == {"non_blocking": True}, "a copy that waits holds the reader up"
            _current.stream.ask(args[0].as_subclass(torch.Tensor), args[1])
            return args[0]
        return super().__torch_function__(func, types, args, kwargs or {})


class Stream:
    def __init__(self, cuda: StandInCuda) -> None:
        self.cuda = cuda
        self.asked: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.done = 0
        self.waited_for: list[object] = []
        self.lock = threading.Lock()

    def ask(self, target: torch.Tensor, source: torch.Tensor) -> None:
        with self.lock:
            self.asked.append((target, source))

    def wait_stream(self, other: object) -> None:
        self.waited_for.append((other, len(self.asked)))

    def record_event(self) -> Event:
        with self.lock:
            return Event(self, len(self.asked))

    def synchronize(self) -> None:
        self.record_event().synchronize()


@dataclass(frozen=True)
class Event:
    stream: Stream
    position: int

    def synchronize(self) -> None:
        stream = self.stream
        with stream.lock:
            for number in range(stream.done, self.position):
                stream.done = number + 1
                if number == stream.cuda.failing_copy:
                    raise RuntimeError("CUDA error: an illegal memory access was encountered")
                target, source = stream.asked[number]
                target.copy_(source)


@dataclass
class StandInCuda:
    """`pin` is asked before memory is page-locked, with the number of the request and its bytes."""

    pin: Callable[[int, int], None] = lambda _number, _size: None
    cards: int = 1
    failing_copy: int | None = None
    pins: list[int] = field(default_factory=list)
    pinned_bytes: int = 0
    peak_pinned_bytes: int = 0
    memory: list[weakref.ref] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)

    def is_available(self) -> bool:
        return self.cards > 0

    def device_count(self) -> int:
        return self.cards

    def current_device(self) -> int:
        return 0

    def current_stream(self, device: torch.device) -> str:
        return f"the caller's of {device}"

    def Stream(self, device: torch.device) -> Stream:
        assert device.index is not None, "threads have a current card of their own"
        self.streams.append(Stream(self))
        return self.streams[-1]

    @contextmanager
    def stream(self, stream: Stream):
        _current.stream = stream
        yield
        del _current.stream

    @property
    def live_memory(self) -> int:
        return sum(ref() is not None for ref in self.memory)


class StandInTorch:
    """What `modelcache.device_copy` calls `torch`."""

    uint8 = torch.uint8
    device = torch.device
    __version__ = torch.__version__

    def __init__(self, cuda: StandInCuda) -> None:
        self.cuda = cuda

    def empty(self, size: int, *, dtype, device=None, pin_memory=False):
        if not pin_memory:
            assert device.type == "cuda"
            found = torch.empty(size, dtype=dtype).as_subclass(CardTensor)
            self.cuda.memory.append(weakref.ref(found))
            return found
        self.cuda.pins.append(size)
        self.cuda.pin(len(self.cuda.pins), size)
        found = torch.empty(size, dtype=dtype)
        self.cuda.pinned_bytes += size
        self.cuda.peak_pinned_bytes = max(self.cuda.peak_pinned_bytes, self.cuda.pinned_bytes)
        weakref.finalize(found, self._unpin, size)
        return found

    def _unpin(self, size: int) -> None:
        self.cuda.pinned_bytes -= size
