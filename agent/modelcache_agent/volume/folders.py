"""Where a pod's volume lies in the store, and what is written there.

    pods/<pod's UID>/<volume>/volume.json    what the kubelet asked for; by the CSI process
                              bound.json     which content it shows; by the agent
                              beside.json    which versions it shows beside that; by the agent
                              building/      what is not complete yet; by the agent
                              content/       what the pod sees: its inode never changes

What is not complete lies beside what the pod sees, so that everything there appears as a whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelcache_agent.tiers.layout import is_uid
from modelcache_api.names import (
    VOLUME_HUB_FOLDER,
    VOLUME_MODEL_FOLDER,
    VOLUME_SOCKET,
    VOLUME_STATUS_FILE,
    VOLUME_VERSIONS_FOLDER,
)

READABLE_MODE: Final = 0o444
_VOLUME_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_GONE_PREFIX: Final = ".gone-"
_NOTICE: Final = ".changed"


@dataclass(frozen=True, slots=True)
class VolumeFolder:
    """The folder of one volume."""

    root: Path

    @property
    def key(self) -> str:
        """Names the volume among those of the node."""
        return f"{self.root.parent.name}/{self.root.name}"

    @property
    def record(self) -> Path:
        """What the kubelet asked for. A folder without it is half made and means nothing."""
        return self.root / "volume.json"

    @property
    def bound(self) -> Path:
        """Which content is shown, written before the first link."""
        return self.root / "bound.json"

    @property
    def beside(self) -> Path:
        """Which further versions are shown, under which names."""
        return self.root / "beside.json"

    @property
    def building(self) -> Path:
        """Trees that are not complete yet."""
        return self.root / "building"

    @property
    def staging(self) -> Path:
        """A mount point that only old kernels need."""
        return self.root / "staging"

    @property
    def content(self) -> Path:
        """What is mounted."""
        return self.root / "content"

    @property
    def model(self) -> Path:
        """The model's files; there once all of them are."""
        return self.content / VOLUME_MODEL_FOLDER

    @property
    def hub(self) -> Path:
        """The same files as a cache of the hub."""
        return self.content / VOLUME_HUB_FOLDER

    @property
    def versions(self) -> Path:
        """Further versions, by the names of their ModelVersions; there while there are any."""
        return self.content / VOLUME_VERSIONS_FOLDER

    def version(self, name: str) -> Path:
        """The files of a further version."""
        return self.versions / name

    @property
    def status(self) -> Path:
        """How far it is, for the wait container."""
        return self.content / VOLUME_STATUS_FILE

    @property
    def socket(self) -> Path:
        """Where the pod's processes reach the agent; by the agent."""
        return self.content / VOLUME_SOCKET


def is_volume_id(name: str) -> bool:
    """True if the kubelet's id of a volume is safe as a folder's name."""
    return _VOLUME_ID.fullmatch(name) is not None


def find_folders(pods: Path) -> Iterator[VolumeFolder]:
    """All folders of volumes, half-made ones too. Those that vanish meanwhile are left out."""
    for pod in find_pods(pods):
        for volume in _list(pod):
            if is_volume_id(volume.name) and volume.is_dir() and not volume.is_symlink():
                yield VolumeFolder(volume)


def find_pods(pods: Path) -> Iterator[Path]:
    """The folder of each pod that has or had a volume."""
    return (path for path in _list(pods) if is_uid(path.name))


def find_gone(pods: Path) -> Iterator[Path]:
    """Folders whose removal was interrupted."""
    return (path for path in _list(pods) if path.name.startswith(_GONE_PREFIX))


def make_gone_path(folder: VolumeFolder, number: int) -> Path:
    """Where a volume's folder goes before it is removed."""
    return folder.root.parent.parent / f"{_GONE_PREFIX}{folder.root.name}-{number}"


def give_notice(pods: Path) -> None:
    """Wake whoever watches the folder: a volume came or went."""
    notice = pods / _NOTICE
    notice.touch(0o600)
    os.utime(notice)


def write_readable(path: Path, data: bytes, temporary: Path) -> None:
    """Replace a file that everybody may read. Not durable: it can be written again."""
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    temporary.chmod(READABLE_MODE)
    temporary.rename(path)


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
