"""How much of the agent the processes of one pod may take. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

MOST_CONNECTIONS_OF_A_POD: Final = 16
MOST_CONNECTIONS: Final = 512
MOST_CONTROLS_OF_A_POD: Final = 4
"""Connections for control alone, beside the others: a pod that has all of those can be drained."""
MOST_CONTROLS: Final = 256
"""All pods of a node are drained at once when it is: a kubelet runs 110, rarely up to 250."""
HELLO_SECONDS: Final = 5.0
"""For the first message after a connection."""
MESSAGE_SECONDS: Final = 5.0
"""From the first byte of a message to its last, in either direction."""
ACCEPT_PAUSE_SECONDS: Final = 0.005
REQUEST_PAUSE_SECONDS: Final = 0.01
"""Between two requests of one connection: whoever asks in a loop waits, not the agent."""
DEMAND_SECONDS: Final = 60.0
"""A volume's demands count once in so long: asking often makes no model more wanted."""
MOST_INDEX_BYTES: Final = 64 << 20
"""Of all indexes of the node together; they are the agent's memory."""


@dataclass(frozen=True, slots=True)
class Pace:
    """So many at once after a silence, and over time one each `seconds`."""

    burst: int
    seconds: float


USE_PACE: Final = Pace(8, 1.0)
"""How often the agent looks anew because a pod's processes hold other versions than before."""
DEVICE_PACE: Final = Pace(MOST_CONNECTIONS_OF_A_POD, 1.0)
"""How often a pod may ask for GPU memory; all its processes may at once."""


@dataclass(frozen=True, slots=True)
class Turns:
    """What is left of a pace at the moment `at` (monotonic seconds)."""

    pace: Pace
    left: float
    at: float

    def take(self, now: float) -> tuple[Turns, float]:
        """One turn less, and 0; or none taken, and the seconds until there is one."""
        grown = self.left + max(0.0, now - self.at) / self.pace.seconds
        left = min(grown, float(self.pace.burst))
        seen = replace(self, left=left, at=max(now, self.at))
        if left >= 1.0:
            return replace(seen, left=left - 1.0), 0.0
        return seen, (1.0 - left) * self.pace.seconds


def begin_turns(pace: Pace, now: float) -> Turns:
    """All of the burst is left."""
    return Turns(pace, float(pace.burst), now)


def refuse_connection(of_pod: int, in_all: int) -> str | None:
    """Why one more connection is not taken, beside those that are open, before it says hello."""
    if of_pod >= MOST_CONNECTIONS_OF_A_POD + MOST_CONTROLS_OF_A_POD:
        return _describe_crowd(of_pod)
    if in_all >= MOST_CONNECTIONS + MOST_CONTROLS:
        return _describe_full_agent(in_all)
    return None


def refuse_reader(of_pod: int, in_all: int) -> str | None:
    """Why a process is not taken, beside those that have said hello."""
    if of_pod >= MOST_CONNECTIONS_OF_A_POD:
        return _describe_crowd(of_pod)
    return _describe_full_agent(in_all) if in_all >= MOST_CONNECTIONS else None


def refuse_control(of_pod: int, in_all: int) -> str | None:
    """Why a connection for control is not taken, beside those that have said hello."""
    if of_pod >= MOST_CONTROLS_OF_A_POD:
        return f"{of_pod} drains of this pod are connected, and no more are taken: one is enough"
    return _describe_full_agent(in_all) if in_all >= MOST_CONTROLS else None


def _describe_crowd(of_pod: int) -> str:
    return (
        f"this pod has {of_pod} connections to its agent, and may have no more: one attachment "
        "of a process serves all its threads"
    )


def _describe_full_agent(in_all: int) -> str:
    return f"this node's agent has {in_all} connections and takes no more"


def is_new_demand(last: float | None, now: float) -> bool:
    """Whether a volume's demand counts (monotonic seconds)."""
    return last is None or now - last >= DEMAND_SECONDS
