"""The pod's volume, as the node's agent fills it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from modelcache.errors import NoVolumeError, VolumeRefusedError
from modelcache_api.names import (
    ENV_MODEL_PATH,
    LABEL_CACHE,
    MOUNT_PATH,
    VOLUME_MODEL_FOLDER,
    VOLUME_SOCKET,
    VOLUME_STATUS_FILE,
    VolumeState,
)
from modelcache_api.volume_progress import MAX_PROGRESS_BYTES, VolumeProgress, decode_progress


@dataclass(frozen=True, slots=True)
class Volume:
    """A mounted volume: `root` holds status.json and, once complete, `model/`."""

    root: Path

    @property
    def model(self) -> Path:
        """Where the complete model is, or will be."""
        return self.root / VOLUME_MODEL_FOLDER

    @property
    def socket(self) -> Path:
        """Where the agent listens."""
        return self.root / VOLUME_SOCKET

    @property
    def is_ready(self) -> bool:
        """Whether the model is complete: it appears whole or not at all."""
        return self.model.is_dir()

    def progress(self) -> VolumeProgress:
        """How far it is.

        Raises:
            NoVolumeError: there is no volume of ModelCache.
            VolumeRefusedError: the agent does not hand the model to this pod.
        """
        try:
            with (self.root / VOLUME_STATUS_FILE).open("rb") as file:
                found = decode_progress(file.read(MAX_PROGRESS_BYTES))
        except OSError:
            found = None
        if found is None:
            raise NoVolumeError(
                f"{self.root} is no volume of ModelCache: give the pod the label {LABEL_CACHE}, "
                "or say where the volume is mounted with root="
            )
        if found.state is VolumeState.REFUSED:
            raise VolumeRefusedError(f"{found.cache}: {found.reason}: {found.message}")
        return found

    def progress_of(self, cache: str | None) -> VolumeProgress:
        """The same; None: of whichever ModelCache it is.

        Raises:
            NoVolumeError: also where the volume is of another ModelCache.
            VolumeRefusedError: as above.
        """
        progress = self.progress()
        if cache is not None and cache not in {progress.cache, progress.cache.rpartition("/")[2]}:
            raise NoVolumeError(f"{self.root} shows {progress.cache}, not {cache}")
        return progress


def find_volume(root: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Volume:
    """The volume at `root`, else where the injected environment says, else at /mnt/models."""
    if root is not None:
        return Volume(Path(root))
    if model := environment.get(ENV_MODEL_PATH):
        return Volume(Path(model).parent)
    return Volume(Path(MOUNT_PATH))


def watch(volume: Volume, cache: str | None) -> Iterator[VolumeProgress]:
    """How far it is, look by look, until the model is there; the caller waits in between.

    Raises:
        NoVolumeError: also where the volume is of another ModelCache than `cache`.
    """
    while True:
        progress = volume.progress_of(cache)
        if volume.is_ready:
            return
        yield progress
