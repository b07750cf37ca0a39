"""Attach to the model of this pod."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from modelcache.attachment import Attachment
from modelcache.errors import DevelopmentWarning, ModelCacheError, NotReadyError, NoVolumeError
from modelcache.live import LiveVolume
from modelcache.volume import find_volume, watch
from modelcache_api.names import ENV_DEVELOPMENT_FOLDER, ENV_MODEL_PATH, VolumeState
from modelcache_api.volume_progress import VolumeProgress

_SETTLING_SECONDS: Final = 2.0

OnMiss = Literal["wait", "raise"]
Told = Callable[[VolumeProgress], None]


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
    if (folder := _development_folder(root)) is not None:
        return attach_folder(folder)
    live = LiveVolume(find_volume(root, os.environ))
    deadline = _deadline(on_miss, timeout)
    try:
        for progress in watch(live.volume, cache):
            _judge(progress, deadline, on_progress)
            live.demand()
            live.pause(_remaining(deadline))
        until = time.monotonic() + _SETTLING_SECONDS
        while not _is_told(live, until):
            live.pause(_remaining(until))
        return _attachment(live)
    except BaseException:
        live.close()
        raise


async def attach_async(
    cache: str | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    on_miss: OnMiss = "wait",
    timeout: float | None = None,
    on_progress: Told | None = None,
) -> Attachment:
    """As `attach`, for programs with an event loop."""
    if (folder := _development_folder(root)) is not None:
        return attach_folder(folder)
    live = LiveVolume(find_volume(root, os.environ))
    deadline = _deadline(on_miss, timeout)
    try:
        for progress in watch(live.volume, cache):
            _judge(progress, deadline, on_progress)
            live.demand()
            await live.pause_async(_remaining(deadline))
        until = time.monotonic() + _SETTLING_SECONDS
        while not _is_told(live, until):
            await live.pause_async(_remaining(until))
        return _attachment(live)
    except BaseException:
        live.close()
        raise


def attach_folder(path: str | os.PathLike[str]) -> Attachment:
    """Attach to a plain folder with a model, on a machine without ModelCache: for development.

    Raises:
        NoVolumeError: there is no such folder.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise NoVolumeError(f"{folder} is no folder; in a pod, attach() finds {ENV_MODEL_PATH}")
    return Attachment(folder, None)


def _is_told(live: LiveVolume, until: float) -> bool:
    """The folder is there a moment before the agent says which version it is."""
    return live.progress().state is VolumeState.READY or time.monotonic() >= until


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


def _remaining(deadline: float | None) -> float:
    return float("inf") if deadline is None else max(0.0, deadline - time.monotonic())


def _attachment(live: LiveVolume) -> Attachment:
    live.demand()
    return Attachment(live.volume.model, live)


def _development_folder(root: str | os.PathLike[str] | None) -> str | None:
    """The folder that the environment names, unless the caller says where the volume is."""
    folder = os.environ.get(ENV_DEVELOPMENT_FOLDER)
    if not folder or root is not None:
        return None
    if os.environ.get(ENV_MODEL_PATH):
        raise ModelCacheError(
            f"both {ENV_DEVELOPMENT_FOLDER} and {ENV_MODEL_PATH} are set: in a pod, which has a "
            f"volume, take {ENV_DEVELOPMENT_FOLDER} out of the environment"
        )
    warnings.warn(
        f"{ENV_DEVELOPMENT_FOLDER}={folder}: a plain folder, and no volume of a node",
        DevelopmentWarning,
        stacklevel=3,
    )
    return folder
