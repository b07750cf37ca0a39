"""What a user is told instead of a traceback."""

from __future__ import annotations


class SimulationError(Exception):
    """One sentence that names the thing and the cure."""
