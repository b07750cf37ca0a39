"""The seam between the planner and the policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Held


@dataclass(frozen=True, slots=True)
class Ranked:
    """A content and how much it is worth to its policy; `why` says so with the inputs."""

    held: Held
    score: float
    why: str


class EvictionPolicy(Protocol):
    """Orders contents by how gladly they are given up."""

    @property
    def name(self) -> str:
        """The word that chooses it."""
        ...

    def rank(self, candidates: Iterable[Held]) -> tuple[Ranked, ...]:
        """All candidates, first to go first. Equal input gives equal output, whatever its order."""
        ...

    def refuse(self, newcomer: Held, victims: Iterable[Held]) -> str | None:
        """Why the newcomer is not worth its victims, or None.

        Asked for tiers that may leave a newcomer out; a disk always takes what fits. The newcomer's
        history counts the attach that brings it, and its `last_used` is now.
        """
        ...


class AdmitsAll:
    """Who comes is worth any victim."""

    __slots__ = ()

    def refuse(self, newcomer: Held, victims: Iterable[Held]) -> str | None:  # noqa: ARG002 - by the protocol
        """None."""
        return None


def order(ranked: Iterable[Ranked]) -> tuple[Ranked, ...]:
    """Least score first; ties by last use, then by digest, so that two runs choose alike."""
    return tuple(sorted(ranked, key=lambda r: (r.score, r.held.last_used, r.held.digest)))
