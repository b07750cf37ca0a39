"""How much of the agent the processes of one pod may take. Pure."""

from __future__ import annotations

from typing import Final

MOST_CONNECTIONS_OF_A_POD: Final = 16
MOST_CONNECTIONS: Final = 512
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


def refuse_connection(of_pod: int, in_all: int) -> str | None:
    """Why one more connection is not taken, beside those that are open."""
    if of_pod >= MOST_CONNECTIONS_OF_A_POD:
        return (
            f"this pod has {of_pod} connections to its agent, and may have no more: one attachment "
            "of a process serves all its threads"
        )
    if in_all >= MOST_CONNECTIONS:
        return f"this node's agent has {in_all} connections and takes no more"
    return None


def is_new_demand(last: float | None, now: float) -> bool:
    """Whether a volume's demand counts (monotonic seconds)."""
    return last is None or now - last >= DEMAND_SECONDS
