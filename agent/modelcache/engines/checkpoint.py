"""What an engine calls its model, found in the pod's volume."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final

from modelcache.attaching import attach, attach_folder
from modelcache.attachment import Version
from modelcache.errors import LayoutError, NoVolumeError
from modelcache.volume import find_volume
from modelcache.weights import Weights

if TYPE_CHECKING:
    import torch

LOAD_FORMAT: Final = "modelcache"
_SUFFIX: Final = ".safetensors"


def find_version(model: str) -> Version:
    """Wait for the model that the engine was started with, and give it.

    Args:
        model: a folder (the mounted one, or any other one with a model), or the name on the hub of
            the model that the volume shows.

    Raises:
        NoVolumeError: it is neither a folder nor what the volume shows.
        VolumeRefusedError: the node does not hand the model to this pod.
    """
    volume = find_volume(None, os.environ)
    if Path(model).resolve() == volume.model.resolve():
        return attach().version()
    if Path(model).is_dir():
        return attach_folder(model).version()
    attachment = attach()
    hub = attachment.hub_cache
    if hub is not None and (hub / f"models--{model.replace('/', '--')}").is_dir():
        return attachment.version()
    raise NoVolumeError(
        f"{model} is neither a folder nor the model of {attachment.cache}, which this pod's volume "
        f"shows: start the engine with {attachment.path}"
    )


def open_weights(
    model: str, folder: str | None = None, patterns: Sequence[str] | None = None
) -> Weights:
    """The weights in a folder of the model; all files that match, where patterns are given.

    Raises:
        LayoutError: none match, or the layout is ambiguous.
        BadFileError, NoVolumeError, VolumeRefusedError: see there.
    """
    version = find_version(model)
    inner = folder or "."
    if patterns is None:
        return version.safetensors(inner)
    names = sorted(entry.name for entry in (version.path / inner).iterdir())
    chosen = [n for n in names if n.endswith(_SUFFIX) and any(fnmatch(n, p) for p in patterns)]
    if not chosen:
        raise LayoutError(
            f"{version.path / inner} holds no {_SUFFIX} file that matches {', '.join(patterns)}"
        )
    return version.safetensors(inner, files=chosen)


def each_tensor(weights: Weights, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Names, as the engine's model knows them, and tensors on the shared pages."""
    for name in weights:
        yield prefix + name, weights.tensor(name)
