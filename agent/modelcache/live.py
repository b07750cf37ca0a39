"""What is true of the volume now: pushed by the agent, else read from the path."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Final

from modelcache.agent_socket import AgentSocket, wait_readable
from modelcache.errors import FallbackWarning, ModelCacheError
from modelcache.volume import Volume
from modelcache_api.volume_progress import VolumeProgress
from modelcache_api.volume_socket import LONGEST_RETURN_SECONDS, SocketProtocolError

_FIRST_PAUSE_SECONDS: Final = 0.1
_WIDEST_SPREAD: Final = 1.5
# An agent that has started waits so long to hear what its readers use.
_LONGEST_PAUSE_SECONDS: Final = LONGEST_RETURN_SECONDS / _WIDEST_SPREAD
# How old what the path says may be, and how often it is looked at while waiting.
_LOOK_SECONDS: Final = 0.2
_PUSH_SECONDS: Final = 1.0


class LiveVolume:
    """A volume and the line to its agent. Of any thread, also after a fork.

    Without a line, everything is read from the path, and the line is tried again with back-off.
    `fallbacks` counts the times that the line was lost or refused; each is a FallbackWarning. A
    volume without a socket is none of them: its agent is older, or does not run yet.
    """

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.fallbacks = 0
        self.misses = 0
        """Requests that could not go to the version that the weight sends them to."""
        self._line: AgentSocket | None = None
        self._pause = _FIRST_PAUSE_SECONDS
        self._retry_at = 0.0
        self._read_at = float("-inf")
        self._read: VolumeProgress | None = None
        self._is_closed = False
        self.held: frozenset[str] = frozenset()
        """The uids of versions that this process uses."""
        self._is_attached = False
        self._lock = threading.Lock()
        self._is_waiting = False
        self._pid = os.getpid()

    @property
    def is_connected(self) -> bool:
        """Whether the agent tells us of changes."""
        with self._connected() as line:
            if line is not None:
                line.drain()
        return self._line is not None and self._line.progress is not None

    def progress(self) -> VolumeProgress:
        """What is true now.

        Raises:
            ModelCacheError: the volume is gone or refused, and nothing was known before.
        """
        if (heard := self._hear_meanwhile()) is not None:
            return heard
        with self._connected() as line:
            if line is not None:
                line.drain()
                if line.progress is not None:
                    self._pause = _FIRST_PAUSE_SECONDS
                    self._read = line.progress
                    return line.progress
        now = time.monotonic()
        if now - self._read_at >= _LOOK_SECONDS or self._read is None:
            self._read_at = now
            try:
                self._read = self.volume.progress()
            except ModelCacheError:
                if self._read is None:
                    raise
        return self._read

    def demand(self) -> None:
        """Tell the agent that the content is wanted now, if it can be reached."""
        with self._connected() as line:
            if line is not None:
                line.demand()

    def hold(self, *uids: str) -> None:
        """Tell the agent, also after it was lost, that this process is attached and uses these."""
        with self._connected() as line:
            self._is_attached = True
            self.held = self.held.union(uids)
            if line is not None:
                line.hold(self.held)

    def release(self, uid: str) -> None:
        """Tell the agent that this process does not use the version any more."""
        with self._connected() as line:
            self.held = self.held.difference((uid,))
            if line is not None:
                line.hold(self.held)

    def note_miss(self) -> None:
        """Count one of them."""
        with self._guard():
            self.misses += 1

    def index(self) -> memoryview | None:
        """The version's index; None if the agent gives none: then the files say the same."""
        with self._connected() as line:
            if line is not None:
                with self._waiting():
                    return memoryview(line.index())
        return None

    def device(self) -> tuple[bytes, list[int]] | None:
        """Layout and descriptors of the version in GPU memory; None if the agent gives none.

        The caller closes the descriptors.
        """
        with self._connected() as line:
            if line is not None:
                with self._waiting():
                    return line.device()
        return None

    def pause(self, seconds: float) -> None:
        """Until there may be news, at most so long."""
        with self._connected() as line:
            descriptor = None if line is None else line.fileno()
        if descriptor is None:
            time.sleep(min(seconds, _LOOK_SECONDS))
            return
        wait_readable(descriptor, min(seconds, _PUSH_SECONDS))
        self._drain()

    async def pause_async(self, seconds: float) -> None:
        """The same, in an event loop."""
        with self._connected() as line:
            descriptor = None if line is None else line.fileno()
        if descriptor is None:
            await asyncio.sleep(min(seconds, _LOOK_SECONDS))
            return
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, news.set)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), min(seconds, _PUSH_SECONDS))
        finally:
            loop.remove_reader(descriptor)
        self._drain()

    def close(self) -> None:
        """Hang up. What was read stays true as far as it goes."""
        with self._guard():
            self._is_closed = True
            self._hang_up()

    def _drain(self) -> None:
        with self._connected() as line:
            if line is not None:
                line.drain()

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """For an answer that takes its time: it brings what else is said, and others need that."""
        self._is_waiting = True
        try:
            yield
        finally:
            self._is_waiting = False

    def _hear_meanwhile(self) -> VolumeProgress | None:
        """What was pushed last while another thread waits, which has the line for itself."""
        line = self._line
        if line is None or not self._is_waiting or self._pid != os.getpid():
            return None
        return line.progress

    @contextlib.contextmanager
    def _connected(self) -> Iterator[AgentSocket | None]:
        """The line, None without one. What fails on it is a fallback, and no error."""
        with self._guard():
            if self._line is None and not self._is_closed and time.monotonic() >= self._retry_at:
                self._connect()
            try:
                yield self._line
            except SocketProtocolError as error:
                self._note(error)
                if error.request_id is None:
                    self._hang_up()
            except OSError as error:
                self._note(error)
                self._hang_up()

    def _connect(self) -> None:
        try:
            self._line = AgentSocket(self.volume.socket)
            if self._is_attached:
                self._line.hold(self.held)
        except FileNotFoundError:
            self._wait_longer()
        except (OSError, SocketProtocolError) as error:
            self._note(error)
            self._wait_longer()

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
            self._wait_longer()

    def _wait_longer(self) -> None:
        """All processes of a node lose their agent at once, and must not return at once."""
        spread = _WIDEST_SPREAD - random.random()  # noqa: S311 - no secret
        self._retry_at = time.monotonic() + self._pause * spread
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def _note(self, error: Exception) -> None:
        self.fallbacks += 1
        warnings.warn(
            f"{self.volume.socket}: {error}; going on with the path alone",
            FallbackWarning,
            stacklevel=4,
        )

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        if self._pid != os.getpid():
            # The parent goes on reading its line; whoever held the lock is not in this process.
            self._pid = os.getpid()
            self._lock = threading.Lock()
            self._is_waiting = False
            line, self._line = self._line, None
            if line is not None:
                line.close()
            self._retry_at = 0.0
        with self._lock:
            yield
