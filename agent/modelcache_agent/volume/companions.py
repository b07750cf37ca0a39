"""The further versions of all volumes of the node, as they come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from modelcache_agent.decide.beside import (
    RETURN_SECONDS,
    Beside,
    BesidePlan,
    Withdrawal,
    find_due,
)
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.volume.beside import hide_beside, show_beside
from modelcache_agent.volume.folders import VolumeFolder

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Changed:
    """The uids of further versions that a volume shows now; whether one was taken away.

    `look_again_at`: when another one may go (monotonic seconds).
    """

    present: tuple[str, ...]
    has_freed: bool = False
    look_again_at: float | None = None


@dataclass(slots=True)
class Companions:
    """`drain_seconds`: how long what has left the spec stays where processes use it.

    Volumes that are there at the first look may have been served by an agent before: their
    processes have to speak to this one first.
    """

    store: DiskStore
    drain_seconds: float
    monotonic: Callable[[], float]
    _leaving_since: dict[tuple[str, str], float] = field(default_factory=dict)
    _inherited: frozenset[str] | None = None
    _served_at: float = 0.0

    def change(self, folder: VolumeFolder, plan: BesidePlan) -> Changed:
        """Show what is to come, hide what may go. A disk that refuses is tried again next time."""
        present = plan.present
        waiting: tuple[float, ...] = ()
        try:
            for withdrawal in plan.hide:
                due = self._find_due(folder.key, withdrawal)
                if due is None or due > self.monotonic():
                    waiting += () if due is None else (due,)
                    continue
                hide_beside(folder, present, withdrawal.beside)
                present = tuple(one for one in present if one != withdrawal.beside)
                _log.info("volume=%s hides version=%s", folder.key, withdrawal.beside.digest)
            for one in plan.show:
                if self._show(folder, present, one):
                    present = (*present, one)
        except OSError as error:
            if not folder.content.is_dir():
                # The volume was taken away while we worked on it.
                return Changed(())
            _log.warning("volume=%s: versions cannot be changed: %s", folder.key, error.strerror)
        has_freed = any(one not in present for one in plan.present)
        uids = tuple(one.uid for one in present)
        return Changed(uids, has_freed, min(waiting, default=None))

    def note_served(self, keys: Collection[str]) -> None:
        """These are all volumes: what is remembered of others is dropped."""
        if self._inherited is None:
            self._inherited, self._served_at = frozenset(keys), self.monotonic()
        self._leaving_since = {
            known: since for known, since in self._leaving_since.items() if known[0] in keys
        }

    def _show(self, folder: VolumeFolder, present: tuple[Beside, ...], one: Beside) -> bool:
        stored = self.store.catalog.get(one.digest)
        if stored is None or not stored.is_verified:
            return False
        show_beside(folder, present, one, stored, self.store.blobs)
        self.store.note_use(one.digest)
        _log.info("volume=%s shows version=%s beside its own", folder.key, one.digest)
        return True

    def _find_due(self, key: str, withdrawal: Withdrawal) -> float | None:
        one, now = withdrawal.beside, self.monotonic()
        known = (key, one.uid)
        is_used = withdrawal.is_used or self.store.has_readers(one.digest)
        if not (is_used and withdrawal.has_left):
            self._leaving_since.pop(known, None)
        else:
            self._leaving_since.setdefault(known, now)
        used_until = self._leaving_since.get(known, now) + self.drain_seconds
        due = find_due(
            withdrawal,
            is_used=is_used,
            used_until=used_until,
            unknown_until=self._find_unknown_until(key),
        )
        if is_used and due is not None and due <= now:
            _log.warning(
                "volume=%s: version=%s has left the spec %.0f s ago and goes, although processes "
                "use it: those that have its files open keep them",
                *(key, one.digest, self.drain_seconds),
            )
        return due

    def _find_unknown_until(self, key: str) -> float:
        if self._inherited is None:
            return self.monotonic() + RETURN_SECONDS
        return self._served_at + (RETURN_SECONDS if key in self._inherited else 0.0)
