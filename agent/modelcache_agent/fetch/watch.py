"""Watches the streams' sockets: interrupts those that are stalled or whose job was stopped.

A socket that is shut down wakes the thread that reads from it at once, so neither a trickle of
bytes nor a silent server can hold a stream.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.transfer_plan import StallPolicy, is_stalled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelcache_agent.fetch.clock import Clock
    from modelcache_agent.fetch.job_state import JobState
    from modelcache_agent.fetch.source_gate import SourceGate
    from modelcache_agent.fetch.throttle import Throttle

_MAX_TICK_SECONDS: Final = 1.0


class StreamWatch:
    """What one stream is doing on the network. Its stream sets it, the watch thread reads it."""

    def __init__(
        self, clock: Clock, throttle: Throttle | None = None, gate: SourceGate | None = None
    ) -> None:
        self._clock = clock
        self._throttle = throttle
        self._gate = gate
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._job: JobState | None = None
        self._since: float | None = None
        self._held_back_since: float | None = None
        self._received_then = 0
        self._policy: StallPolicy | None = None
        self.received = 0
        self.was_stalled = False

    def use_policy(self, policy: StallPolicy | None) -> None:
        """Judge what follows by this policy; None: by the engine's own."""
        with self._lock:
            self._policy = policy

    def begin(self, job: JobState) -> None:
        """The stream works for this job from now on."""
        with self._lock:
            self._job = job
            self._policy = None
            self._since = None
            self.was_stalled = False

    def end(self) -> None:
        """The stream works for no job."""
        with self._lock:
            self._job = None
            self._since = None

    def set_socket(self, sock: socket.socket | None) -> None:
        """The socket in use, or None when it was given back or closed."""
        with self._lock:
            self._socket = sock
            if self._job is not None and self._job.is_stopped:
                self._shut_down()

    def start_waiting(self) -> None:
        """From now on the network is expected to deliver."""
        with self._lock:
            self._since = self._clock.monotonic()
            self._received_then = self.received

    def stop_waiting(self) -> None:
        """The stream is busy with something else."""
        with self._lock:
            self._since = None

    def await_turn(self, wanted: int, limited: str | None = None) -> int:
        """How many bytes may be read now under the caps on bandwidth; 0 if the job was stopped.

        `limited`: the version whose source is read; None where another node is. A stream that
        waits for its turn is not stalled: its window stands still meanwhile.
        """
        gate = self._gate if limited is not None else None
        if self._throttle is None and gate is None:
            return wanted
        with self._lock:
            self._held_back_since = self._clock.monotonic()
        try:
            amount = wanted
            if self._throttle is not None:
                amount = self._throttle.take(wanted, self._is_stopped)
            if gate is not None and limited is not None:
                amount = self._pass(gate, limited, amount)
            return amount
        finally:
            with self._lock:
                if self._since is not None:
                    self._since += self._clock.monotonic() - self._held_back_since
                self._held_back_since = None

    def _pass(self, gate: SourceGate, uid: str, amount: int) -> int:
        """All of it, turn by turn, where the node's cap has given it: that is not given back."""
        if self._throttle is None:
            return gate.take(uid, amount, self._is_stopped)
        taken = 0
        while taken < amount:
            turn = gate.take(uid, amount - taken, self._is_stopped)
            if not turn:
                return 0
            taken += turn
        return taken

    def _is_stopped(self) -> bool:
        return self._job is not None and self._job.is_stopped

    def interrupt_job(self, job: JobState) -> None:
        """Wake the stream if it works for this job."""
        with self._lock:
            if self._job is job:
                self._shut_down()

    def interrupt_if_stalled(self, now: float, policy: StallPolicy) -> None:
        """Wake the stream if the window passed with too few bytes; else begin a new window."""
        with self._lock:
            policy = self._policy or policy
            if self._since is None or self._held_back_since is not None:
                return
            elapsed = now - self._since
            if elapsed < policy.window_seconds:
                return
            received = self.received - self._received_then
            if is_stalled(elapsed, received, policy):
                self.was_stalled = True
                self._shut_down()
            self._since = now
            self._received_then = self.received

    def _shut_down(self) -> None:
        if self._socket is not None:
            # SSLSocket.shutdown would first drop the TLS state that the reader is using.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def watch_streams(
    watches: Sequence[StreamWatch], policy: StallPolicy, clock: Clock, closing: threading.Event
) -> None:
    """Body of the watch thread; returns when the engine closes."""
    tick = min(_MAX_TICK_SECONDS, policy.window_seconds / 4)
    while not closing.wait(tick):
        now = clock.monotonic()
        for watch in watches:
            watch.interrupt_if_stalled(now, policy)
