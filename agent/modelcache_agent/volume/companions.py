"""The further versions of all volumes of the node, as they come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from dataclasses import dataclass, field

from modelcache_agent.decide.beside import Beside, BesidePlan, Withdrawal
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.volume.beside import hide_beside, show_beside
from modelcache_agent.volume.folders import VolumeFolder

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Changed:
    """The uids of further versions that a volume shows now; whether one was taken away."""

    present: tuple[str, ...]
    has_freed: bool = False


@dataclass(slots=True)
class Companions:
    """`drain_seconds`: how long what has left the spec stays where processes use it."""

    store: DiskStore
    drain_seconds: float
    monotonic: Callable[[], float]
    _leaving_since: dict[tuple[str, str], float] = field(default_factory=dict)

    def change(self, folder: VolumeFolder, plan: BesidePlan) -> Changed:
        """Show what is to come, hide what may go. A disk that refuses is tried again next time."""
        present = plan.present
        try:
            for withdrawal in plan.hide:
                if self._may_go(folder.key, withdrawal):
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
        return Changed(tuple(one.uid for one in present), has_freed)

    def forget_all_but(self, keys: Container[str]) -> None:
        """Drop what is remembered of volumes that are gone."""
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

    def _may_go(self, key: str, withdrawal: Withdrawal) -> bool:
        one = withdrawal.beside
        known = (key, one.uid)
        if not withdrawal.has_left:
            self._leaving_since.pop(known, None)
        if not withdrawal.is_used and not self.store.has_readers(one.digest):
            self._leaving_since.pop(known, None)
            return True
        if not withdrawal.has_left:
            return False
        since = self._leaving_since.setdefault(known, self.monotonic())
        if self.monotonic() - since < self.drain_seconds:
            return False
        _log.warning(
            "volume=%s: version=%s has left the spec %.0f s ago and goes, although processes use "
            "it: those that have its files open keep them",
            *(key, one.digest, self.drain_seconds),
        )
        return True
