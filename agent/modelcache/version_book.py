"""The versions that one process has of its volume."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from modelcache.choice import Track
from modelcache.live import LiveVolume
from modelcache.resident import list_shown, pick
from modelcache_api.volume_progress import ShownVersion, VolumeProgress

if TYPE_CHECKING:
    from modelcache.attachment import Version

Make = Callable[[ShownVersion, LiveVolume], "Version"]


class VersionBook:
    """One handle for each version, of any thread. What is handed out is held until it is closed.

    There is no lock, which a fork could leave held: each step is one of the interpreter's own.
    """

    def __init__(self, live: LiveVolume, make: Make) -> None:
        self._live = live
        self._make = make
        self._handles: dict[str, Version] = {}
        self._looked: tuple[VolumeProgress | None, tuple[ShownVersion, ...]] = (None, ())
        live.hold()

    def list(self) -> tuple[Version, ...]:
        """Handles of all that the volume shows now, its own version first."""
        return tuple(self.take(shown) for shown in self.look())

    def find(self, name: str) -> Version | None:
        """The version of this track or name, if it is here."""
        found = next((one for one in self.look() if name in {one.track, one.name}), None)
        return None if found is None else self.take(found)

    def choose(
        self, track: Track, among: Collection[str] | None, progress: VolumeProgress
    ) -> Version:
        """The handle for a request of this track, as the volume was when that was decided."""
        shown = self._look_at(progress)
        gone = self._live.held.difference(one.uid for one in shown)
        kept = [
            replace(handle.shown, track="", is_leaving=True)
            for uid in gone
            if (handle := self._handles.get(uid)) is not None
        ]
        picked = pick(shown, track, among, kept)
        if picked.is_fallback:
            self._live.note_miss()
        return self.take(picked.version)

    def look(self) -> tuple[ShownVersion, ...]:
        """What the volume shows now, its own version first."""
        return self._look_at(self._live.progress())

    def _look_at(self, progress: VolumeProgress) -> tuple[ShownVersion, ...]:
        seen, shown = self._looked
        if progress is not seen:
            shown = list_shown(progress)
            self._looked = (progress, shown)
        return shown

    def take(self, shown: ShownVersion) -> Version:
        """The handle of a version, which is held from now on."""
        handle = self._handles.get(shown.uid)
        if handle is None:
            handle = self._handles.setdefault(shown.uid, self._make(shown, self._live))
        if shown.uid not in self._live.held:
            self._live.hold(shown.uid)
        return handle
