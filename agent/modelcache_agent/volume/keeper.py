"""The agent's side of all volumes of the node. Its methods block; the store's thread calls them."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from modelcache_agent.decide.measures import Attach, judge_attach
from modelcache_agent.decide.volumes import Filling, Volume, VolumeView
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.history_book import Wait
from modelcache_agent.volume.beside import look_beside
from modelcache_agent.volume.companions import Companions
from modelcache_agent.volume.fill import fill
from modelcache_agent.volume.folders import VolumeFolder, find_folders, write_readable
from modelcache_agent.volume.leftovers import measure_leftovers
from modelcache_agent.volume.records import read_binding, read_record
from modelcache_api.conditions import truncate
from modelcache_api.manifest import ContentDigest
from modelcache_api.names import Reason, VolumeState
from modelcache_api.volume_progress import (
    MAX_PROGRESS_BYTES,
    VolumeProgress,
    decode_progress,
    encode_progress,
)

_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)
# The volume was taken away while we worked on it.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class Served:
    """What each volume's pod may know, by the volume's key; whether a content was given up.

    `attached` are those that show their content since now.
    `look_again_at`: when one may be that is not yet (monotonic seconds).
    """

    shown: Mapping[str, VolumeProgress]
    has_freed: bool
    attached: tuple[Attach, ...] = ()
    look_again_at: float | None = None


@dataclass(slots=True)
class VolumeKeeper:
    """Looks at volumes, fills them, and tells their pods. All it knows is read from the store."""

    store: DiskStore
    companions: Companions
    _told: dict[str, VolumeProgress] = field(default_factory=dict)
    _damaged: set[Path] = field(default_factory=set)
    _looked_at: float = 0.0
    _asked_at: dict[str, float] = field(default_factory=dict)
    """When volumes that show nothing yet were seen first, by key."""

    _attached: list[Attach] = field(default_factory=list)

    def look(self) -> tuple[tuple[Volume, ...], int]:
        """All volumes, by key, and the bytes that only they hold.

        One whose record is damaged still protects what it shows.
        """
        found = (self._look_at(folder) for folder in find_folders(self.store.layout.pods))
        volumes = tuple(volume for volume in found if volume is not None)
        self.store.history.note_running(
            v.bound_digest for v in volumes if v.is_filled and v.bound_digest is not None
        )
        self._looked_at = now = self.store.now()
        self._asked_at = {v.key: self._asked_at.get(v.key, now) for v in volumes if not v.is_filled}
        keys = {volume.key for volume in volumes}
        self._told = {key: told for key, told in self._told.items() if key in keys}
        return volumes, measure_leftovers(self.store, volumes)

    def serve(self, views: Iterable[VolumeView]) -> Served:
        """Fill what can be filled, write what each pod may know, and count who was attached."""
        shown: dict[str, VolumeProgress] = {}
        has_freed = False
        moments: list[float] = []
        for view in views:
            own = self._fill(view) if view.filling is not None else _progress(view)
            changed = self.companions.change(self._folder(view.key), view.beside)
            has_freed = has_freed or changed.has_freed
            if changed.look_again_at is not None:
                moments.append(changed.look_again_at)
            shown[view.key] = self._complete(view, own, frozenset(changed.present))
            self._tell(view.key, shown[view.key])
        self.companions.note_served(shown)
        self.store.save_history()
        attached, self._attached = tuple(self._attached), []
        return Served(shown, has_freed, attached, min(moments, default=None))

    def _complete(
        self, view: VolumeView, own: VolumeProgress, beside: frozenset[str]
    ) -> VolumeProgress:
        """With all versions that are there. Before the node's list is known, what was said last.

        Else an agent that starts would take a canary's traffic away for a moment.
        """
        if own.state is not VolumeState.READY:
            return own
        if not view.is_list_known:
            last = self._read_status(view.key)
            if last is not None and last.content_digest == own.content_digest:
                return last
        there = {own.version_uid, *beside}
        return replace(own, versions=tuple(one for one in view.versions if one.uid in there))

    def _read_status(self, key: str) -> VolumeProgress | None:
        try:
            with self._folder(key).status.open("rb") as file:
                return decode_progress(file.read(MAX_PROGRESS_BYTES))
        except OSError:
            return None

    def _look_at(self, folder: VolumeFolder) -> Volume | None:
        record = self._read(read_record, folder.record)
        binding = self._read(read_binding, folder.bound)
        if record is None and binding is None:
            return None
        return Volume(
            key=folder.key,
            namespace=record.pod_namespace if record else "",
            asked=record.cache if record else "",
            claimed_namespace=record.claimed_namespace if record else "",
            track=record.track if record else "",
            bound_uid=binding.uid if binding else None,
            bound_digest=ContentDigest(binding.digest) if binding else None,
            bound_name=binding.name if binding else "",
            is_filled=folder.model.is_dir(),
            beside=self._read(lambda _path: look_beside(folder), folder.beside) or (),
            pod_name=record.pod_name if record else "",
        )

    def _read(self, read: Callable[[Path], _Value | None], path: Path) -> _Value | None:
        """What the file says; a damaged one is told of once."""
        try:
            return read(path)
        except (OSError, ValueError) as error:
            if path not in self._damaged:
                self._damaged.add(path)
                _log.error("%s is damaged: %s", path, error)
            return None

    def _folder(self, key: str) -> VolumeFolder:
        return VolumeFolder(self.store.layout.pods / key)

    def _fill(self, view: VolumeView) -> VolumeProgress:
        filling = view.filling
        stored = None if filling is None else self.store.catalog.get(filling.digest)
        if filling is None or stored is None or not stored.is_verified:
            return _progress(view)
        try:
            fill(self._folder(view.key), filling, stored, self.store.blobs)
        except OSError as error:
            if error.errno in _GONE:
                return _progress(view)
            _log.exception("volume=%s cannot be filled", view.key)
            message = truncate(f"the files cannot be linked: {error.strerror}")
            return VolumeProgress(
                view.cache, VolumeState.FAILED, Reason.STORE_ERROR, message, 100, view.size_bytes
            )
        self.store.note_use(stored.digest)
        self._note_attach(view.key, filling, stored.held.size_bytes)
        _log.info("volume=%s shows version=%s", view.key, stored.digest)
        return VolumeProgress(
            view.cache,
            VolumeState.READY,
            Reason.CACHED,
            percent=100,
            size_bytes=view.size_bytes,
            version_uid=filling.uid,
            content_digest=stored.digest,
            canary_weight=view.canary_weight,
        )

    def _note_attach(self, key: str, filling: Filling, size_bytes: int) -> None:
        history, wait = self.store.history, self._measure_wait(key)
        attach = judge_attach(
            history.look(filling.digest),
            asked_at=self._find_asked_at(key) or wait.asked_at,
            now=self.store.now(),
            size_bytes=size_bytes,
            wanted=filling.wanted,
            held_in=filling.held_in,
        )
        self._attached.append(attach)
        history.note_attach(filling.digest, wait)

    def _find_asked_at(self, key: str) -> float | None:
        """When the kubelet asked (Unix seconds): the driver wrote the record then."""
        try:
            return self._folder(key).record.stat().st_mtime
        except OSError:
            return None

    def _measure_wait(self, key: str) -> Wait:
        """By looks: how long it takes to fill other volumes before this one is no load."""
        asked_at = self._asked_at.get(key, self._looked_at)
        return Wait(asked_at, self._looked_at - asked_at)

    def _tell(self, key: str, progress: VolumeProgress) -> None:
        if self._told.get(key) == progress:
            return
        folder = self._folder(key)
        try:
            write_readable(folder.status, encode_progress(progress), folder.root / ".status.tmp")
        except OSError as error:
            if error.errno not in _GONE:
                _log.warning("volume=%s: its status cannot be written: %s", key, error.strerror)
            return
        self._told[key] = progress


def _progress(view: VolumeView) -> VolumeProgress:
    return VolumeProgress(
        view.cache,
        view.state,
        view.reason,
        view.message,
        view.percent,
        view.size_bytes,
        view.uid,
        view.digest,
        view.canary_weight,
    )
