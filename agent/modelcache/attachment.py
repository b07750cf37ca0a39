"""Attach to the model of this pod."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from modelcache.errors import NoSuchVersionError, NotReadyError, NoVolumeError
from modelcache.layout import choose_weight_files
from modelcache.volume import Volume, find_volume, watch
from modelcache.weights import Weights
from modelcache_api.names import ENV_MODEL_PATH, VOLUME_HUB_FOLDER
from modelcache_api.volume_progress import VolumeProgress

if TYPE_CHECKING:
    import torch

OnMiss = Literal["wait", "raise"]
Told = Callable[[VolumeProgress], None]

STABLE: Final = "stable"
_LOOK_SECONDS: Final = 0.2


class Version:
    """One immutable content. Everything that is read from it stays valid for the pod's life."""

    def __init__(self, track: str, path: Path) -> None:
        self.track = track
        self.path = path

    def safetensors(
        self,
        folder: str = ".",
        *,
        files: Sequence[str] | None = None,
        read_only: bool = False,
    ) -> Weights:
        """Open the weights in a folder of the model, without reading them.

        `files` names them where the folder's layout does not (see `layout`). Pages are shared
        with all processes of the node until somebody writes; with `read_only` nobody can.

        Raises:
            LayoutError, BadFileError: see there.
        """
        root = self.path / folder
        chosen = choose_weight_files(root) if files is None else [root / name for name in files]
        return Weights(chosen, read_only=read_only)

    def tensors(self, folder: str = ".") -> dict[str, torch.Tensor]:
        """All tensors by name, for torch, on the shared pages."""
        return self.safetensors(folder).tensors()

    def load_into(self, module: torch.nn.Module, folder: str = ".", *, strict: bool = True) -> None:
        """Make the shared pages the parameters of a module; nothing is copied.

        A module on the device `meta` needs no memory of its own. Dtypes become those of the
        file. Parameters that the module ties stay tied where the file names one of them.
        Tensors that the module has no place for are left out.

        Args:
            module: any torch module.
            folder: the folder of the model that its weights lie in, e.g. `unet`.
            strict: refuse if the module has parameters that the file lacks.

        Raises:
            RuntimeError: names are missing or shapes differ (torch's own message).
        """
        from modelcache.torch_module import assign  # noqa: PLC0415 - torch only where it is used

        assign(module, self.tensors(folder), strict=strict)


class Attachment:
    """The model of one pod: what its volume shows."""

    def __init__(self, cache: str | None, model: Path, hub: Path | None) -> None:
        self.cache = cache
        self._model = model
        self.hub_cache = hub

    @property
    def tracks(self) -> tuple[str, ...]:
        """The versions that are there."""
        return (STABLE,)

    @property
    def path(self) -> Path:
        """The folder of the stable version."""
        return self._model

    def version(self, track: str = STABLE) -> Version:
        """The version of a track.

        Raises:
            NoSuchVersionError: the volume shows none.
        """
        if track not in self.tracks:
            raise NoSuchVersionError(f"there is no {track!r} here, but {', '.join(self.tracks)}")
        return Version(track, self._model)


def attach(
    cache: str | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    on_miss: OnMiss = "wait",
    timeout: float | None = None,
    on_progress: Told | None = None,
) -> Attachment:
    """Attach to the volume of this pod.

    Args:
        cache: the ModelCache that is expected there (`name` or `namespace/name`); None: any.
        root: where the volume is mounted; None: as injected, else /mnt/models.
        on_miss: `wait` until the model is complete, or `raise` NotReadyError at once.
        timeout: seconds to wait; None: for ever.
        on_progress: called with what the volume says, at each look while waiting.

    Raises:
        NoVolumeError: nothing of ModelCache is mounted there, or another ModelCache.
        VolumeRefusedError: the node does not hand the model to this pod.
        NotReadyError: it is not complete in time.
    """
    volume = find_volume(root, os.environ)
    deadline = _deadline(on_miss, timeout)
    for progress in watch(volume, cache):
        _judge(progress, deadline, on_progress)
        time.sleep(_LOOK_SECONDS)
    return _attachment(volume)


async def attach_async(
    cache: str | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    on_miss: OnMiss = "wait",
    timeout: float | None = None,
    on_progress: Told | None = None,
) -> Attachment:
    """As `attach`, for programs with an event loop."""
    volume = find_volume(root, os.environ)
    deadline = _deadline(on_miss, timeout)
    for progress in watch(volume, cache):
        _judge(progress, deadline, on_progress)
        await asyncio.sleep(_LOOK_SECONDS)
    return _attachment(volume)


def attach_folder(path: str | os.PathLike[str]) -> Attachment:
    """Attach to a plain folder with a model, on a machine without ModelCache: for development.

    Raises:
        NoVolumeError: there is no such folder.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise NoVolumeError(f"{folder} is no folder; in a pod, attach() finds {ENV_MODEL_PATH}")
    return Attachment(None, folder, None)


def _deadline(on_miss: OnMiss, timeout: float | None) -> float | None:
    if on_miss == "raise":
        return time.monotonic()
    return None if timeout is None else time.monotonic() + timeout


def _judge(progress: VolumeProgress, deadline: float | None, told: Told | None) -> None:
    if deadline is not None and time.monotonic() >= deadline:
        message = f": {progress.message}" if progress.message else ""
        raise NotReadyError(
            f"{progress.cache} is not complete on this node: {progress.state} "
            f"({progress.reason}, {progress.percent} %){message}"
        )
    if told is not None:
        told(progress)


def _attachment(volume: Volume) -> Attachment:
    return Attachment(volume.progress().cache, volume.model, volume.root / VOLUME_HUB_FOLDER)
