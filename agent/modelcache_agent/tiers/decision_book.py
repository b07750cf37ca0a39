"""The last decisions of this node that cost something: decisions.json.

The store's thread writes; any thread may read. A damaged book counts as empty.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from modelcache_agent.decide.actions import Victim
from modelcache_agent.tiers.durable import write_atomically
from modelcache_api.decisions import MOST_DECISIONS, Decision, DecisionKind, Decisions
from modelcache_api.names import Tier

_log = logging.getLogger(__name__)


class DecisionBook:
    """What cannot be written now is written with the next decision, and still holds here."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._decisions: tuple[Decision, ...] = ()

    def load(self) -> None:
        """Read what an earlier process wrote."""
        try:
            self._decisions = Decisions.model_validate_json(self._path.read_bytes()).decisions
        except FileNotFoundError:
            return
        except ValueError:
            _log.warning("the book of decisions is damaged and was dropped: it begins anew")

    def look(self) -> Decisions:
        """The last decisions, the newest first."""
        return Decisions(decisions=self._decisions)

    def note_eviction(
        self, victim: Victim, uids: tuple[str, ...], size_bytes: int, tier: Tier = Tier.DISK
    ) -> None:
        """A content has left the tier."""
        self._note(
            Decision(
                at=self._clock(),
                kind=DecisionKind.EVICTED,
                tier=tier,
                cause=victim.cause,
                digest=victim.digest,
                uids=uids,
                size_bytes=size_bytes,
                policy=victim.policy,
                score=victim.score,
                inputs=victim.inputs,
            )
        )

    def note_pressure(self, kind: DecisionKind, cause: str, tier: Tier = Tier.DISK) -> None:
        """Pressure began or ended."""
        self._note(Decision(at=self._clock(), kind=kind, tier=tier, cause=cause))

    def _note(self, decision: Decision) -> None:
        self._decisions = (decision, *self._decisions)[:MOST_DECISIONS]
        # An explanation is no reason to stop on a disk that is full or read-only.
        with suppress(OSError):
            write_atomically(self._path, self.look().model_dump_json(by_alias=True).encode())
