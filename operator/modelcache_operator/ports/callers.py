"""What the API server knows about who calls us."""

from __future__ import annotations

from typing import Protocol

from modelcache_operator.decide.grant_access import Claims, PodState


class Callers(Protocol):
    """Asks anew on each call. Errors of the API server pass through."""

    async def review(self, token: str) -> Claims | None:
        """The claims of a token that is valid for the grant audience; None for any other."""

    async def pod(self, namespace: str, name: str) -> PodState | None:
        """The pod, or None if it is gone."""
