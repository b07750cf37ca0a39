"""What NodePublishVolume and NodeUnpublishVolume do, without gRPC.

Published is: folder -> status.json -> volume.json (durable; from here on the copy on the disk is
protected) -> mount. Unpublished is: unmount -> folder away in one rename -> remove. Both may be
asked for again after a kill at any point. Neither waits for bytes or needs the agent.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from modelcache_agent.tiers.durable import sync_directory, write_atomically
from modelcache_agent.tiers.layout import DIRECTORY_MODE, StoreLayout
from modelcache_agent.volume.errors import VolumeConflictError, VolumeNotNowError
from modelcache_agent.volume.folders import (
    VolumeFolder,
    find_folders,
    find_gone,
    find_pods,
    give_notice,
    make_gone_path,
    write_readable,
)
from modelcache_agent.volume.mounts import mount_read_only, shows_read_only, unmount
from modelcache_agent.volume.records import VolumeRecord, encode, read_record
from modelcache_agent.volume.requests import (
    PublishRequest,
    check_target,
    check_volume_id,
    make_record,
)
from modelcache_api.names import Reason, VolumeState
from modelcache_api.volume_progress import VolumeProgress, encode_progress

_log = logging.getLogger(__name__)
_REMOVAL_TRIES = 5
_TARGET_MODE = 0o750

Mount = Callable[[Path, Path, Path], None]
Step = Callable[[str], None]


class Publisher:
    """One node's volumes. Calls from many threads wait for each other: each takes milliseconds.

    `step` is called with a name before each durable step; tests end the process there.
    """

    def __init__(
        self,
        store: Path,
        kubelet_dir: Path,
        *,
        mount: Mount = mount_read_only,
        step: Step = lambda _name: None,
    ) -> None:
        self._layout = StoreLayout(store)
        self._kubelet_pods = kubelet_dir / "pods"
        self._mount = mount
        self._step = step
        self._lock = threading.Lock()

    def publish(self, request: PublishRequest) -> None:
        """Show the pod its volume; bytes come later.

        Raises:
            VolumeError, OSError: it is not mounted.
        """
        record = make_record(request, PurePosixPath(self._kubelet_pods))
        with self._lock:
            self._check_store()
            folder = self._folder(record)
            self._persist(folder, record)
            self._show(folder, Path(record.target_path))
            give_notice(self._layout.pods)
        _log.info(
            "published pod=%s/%s cache=%s volume=%s",
            record.pod_namespace,
            record.pod_name,
            record.cache,
            record.volume_id,
        )

    def unpublish(self, volume_id: str, target_path: str) -> None:
        """Take the volume away, whatever is left of it.

        Raises:
            VolumeError, OSError: something of it is still there.
        """
        check_volume_id(volume_id)
        target = Path(check_target(target_path, PurePosixPath(self._kubelet_pods)))
        with self._lock:
            self._step("unmount")
            _remove_mount(target)
            for folder in list(find_folders(self._layout.pods)):
                if folder.root.name == volume_id:
                    self._move_away(folder)
            self._remove_gone()
        _log.info("unpublished volume=%s", volume_id)

    def sweep(self) -> None:
        """Finish what kills have interrupted, and drop volumes of pods that nobody knows.

        Where the kubelet's folder of pods is not there, nobody can tell, and all stay.
        """
        with self._lock:
            if self._kubelet_pods.is_dir():
                for folder in list(find_folders(self._layout.pods)):
                    self._sweep_one(folder)
            self._remove_gone()

    def _sweep_one(self, folder: VolumeFolder) -> None:
        try:
            record = read_record(folder.record)
        except (OSError, ValueError) as error:
            _log.error("volume=%s: its record cannot be read: %s", folder.key, error)
            return
        if record is None:
            self._move_away(folder)
        elif not Path(record.target_path).parent.is_dir():
            _log.warning("volume=%s: the kubelet knows it no more", folder.key)
            self._move_away(folder)

    def _check_store(self) -> None:
        if not self._layout.about.is_file():
            raise VolumeNotNowError(
                f"there is no store at {self._layout.root}: wait for this node's agent, and give "
                "it and the CSI process the same --store"
            )

    def _folder(self, record: VolumeRecord) -> VolumeFolder:
        return VolumeFolder(self._layout.pods / record.pod_uid / record.volume_id)

    def _persist(self, folder: VolumeFolder, record: VolumeRecord) -> None:
        try:
            known = read_record(folder.record)
        except ValueError:
            known = None
        if known is not None and known != record:
            raise VolumeConflictError("this volume id was published with another request")
        self._step("folder")
        for path in (self._layout.pods, folder.root.parent, folder.root, folder.content):
            path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        if not folder.status.exists():
            self._step("status")
            progress = encode_progress(_first_progress(record))
            write_readable(folder.status, progress, folder.root / ".status.tmp")
        if known is None:
            self._step("record")
            write_atomically(folder.record, encode(record))
            for path in (folder.root.parent, self._layout.pods, self._layout.root):
                sync_directory(path)

    def _show(self, folder: VolumeFolder, target: Path) -> None:
        self._step("target")
        target.mkdir(mode=_TARGET_MODE, parents=True, exist_ok=True)
        if shows_read_only(target, folder.content):
            return
        # What an earlier life of the volume left there would hide or be hidden.
        unmount(target)
        self._step("mount")
        self._mount(folder.content, target, folder.staging)
        self._step("mounted")
        if not shows_read_only(target, folder.content):
            unmount(target)
            raise VolumeNotNowError("the mount did not become visible read-only")

    def _move_away(self, folder: VolumeFolder) -> None:
        """In one rename, so that the agent never sees or fills a half of it."""
        unmount(folder.staging)
        for number in itertools.count():
            gone = make_gone_path(folder, number)
            if not gone.exists():
                break
        self._step("rename")
        folder.root.rename(gone)

    def _remove_gone(self) -> None:
        """What was moved away, in this life or an earlier one, and folders of pods left empty."""
        self._step("remove")
        for path in find_gone(self._layout.pods):
            _remove_tree(path)
        for path in find_pods(self._layout.pods):
            # Unless there is a volume in it.
            with contextlib.suppress(OSError):
                path.rmdir()
        if self._layout.pods.is_dir():
            give_notice(self._layout.pods)


def _first_progress(record: VolumeRecord) -> VolumeProgress:
    return VolumeProgress(
        cache=f"{record.pod_namespace}/{record.cache}",
        state=VolumeState.WAITING,
        reason=Reason.WAITING,
        message="the node's agent has not looked at this volume yet",
    )


def _remove_mount(target: Path) -> None:
    unmount(target)
    try:
        target.rmdir()
    except FileNotFoundError:
        return


def _remove_tree(path: Path) -> None:
    """Links that the agent was making in this very moment may arrive while it is removed."""
    for attempt in range(_REMOVAL_TRIES):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError:
            if attempt == _REMOVAL_TRIES - 1:
                raise
        else:
            return
