"""Who wants to know of each request to the API server."""

from __future__ import annotations

from collections.abc import Callable


class RequestTap:
    """Passes on what the connection tells of each request."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[str, str, int], None]] = []

    def __call__(self, verb: str, resource: str, code: int) -> None:
        """Called once for each request that was answered."""
        for listener in self.listeners:
            listener(verb, resource, code)
