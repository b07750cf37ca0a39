"""Where a gate's query is asked."""

from __future__ import annotations

from typing import Protocol

from modelcache_operator.decide.promql_gate import Answer


class Measures(Protocol):
    """The server that the administrator has chosen."""

    async def ask(self, query: str) -> Answer:
        """What it says now. Bounded in time and size; never raises for what the server does."""
