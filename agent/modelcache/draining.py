"""Before a pod ends: it takes no new work, and its processes are waited for."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from modelcache.agent_socket import AgentSocket
from modelcache.errors import DrainUnknownError
from modelcache.volume import Volume
from modelcache_api.names import SocketReason
from modelcache_api.volume_holders import Holder, describe_holders
from modelcache_api.volume_socket import SocketProtocolError

_RETRY_SECONDS: Final = 0.5

Told = Callable[[str], None]


def drain(volume: Volume, seconds: float, tell: Told) -> tuple[Holder, ...] | None:
    """Tell the pod's processes to take no new work, and wait until all of them have closed.

    Returns those that are still attached after so many seconds, None if the node's agent did not
    say. An agent that comes back hears of processes when they speak to it again: those that were
    attached before are waited for until then.

    Raises:
        DrainUnknownError: the node's agent knows no draining.
    """
    deadline = time.monotonic() + seconds
    tell = _once(tell)
    attached: tuple[Holder, ...] | None = None
    while True:
        # Of a line that was lost: they may not have come back yet.
        missing, back = attached or (), Counter[int]()
        for found in _listen(volume, deadline, tell):
            back |= Counter(holder.pid for holder in found)
            attached = (*found, *_leave_out(missing, back))
            if not attached:
                return ()
            tell(f"waits for {describe_holders(attached)}")
        left = deadline - time.monotonic()
        if left <= 0:
            return attached
        time.sleep(min(left, _RETRY_SECONDS))


def _leave_out(holders: Iterable[Holder], back: Counter[int]) -> Iterator[Holder]:
    """Without those that are back: each container counts its processes from 1."""
    left = Counter(back)
    for holder in holders:
        if left[holder.pid] > 0:
            left[holder.pid] -= 1
        else:
            yield holder


def _once(tell: Told) -> Told:
    """The same again is no news."""
    said = ""

    def tell_news(text: str) -> None:
        nonlocal said
        if text != said:
            said = text
            tell(text)

    return tell_news


def _listen(volume: Volume, deadline: float, tell: Told) -> Iterator[tuple[Holder, ...]]:
    """Who is attached, at once and whenever it changes, until the line or the time ends."""
    try:
        with contextlib.closing(AgentSocket(volume.socket, is_control=True)) as line:
            line.begin_draining()
            while (left := deadline - time.monotonic()) > 0:
                holders = line.next_holders(left)
                if holders is not None:
                    yield holders
    except SocketProtocolError as error:
        if error.reason is SocketReason.UNKNOWN_MESSAGE:
            raise DrainUnknownError(
                "this node's agent is older and knows no draining: upgrade it, or leave the "
                "command out"
            ) from None
        tell(f"the node's agent refuses: {error}")
    except OSError as error:
        tell(f"the node's agent does not answer ({error.strerror or error}), asking again")
