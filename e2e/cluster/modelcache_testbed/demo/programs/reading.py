"""What both readers do: open a model when first asked, and each time touch all of it and embed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from modelcache_testbed.demo.programs.lines import serve

# All tensors, and the vector of the sentence.
Look = Callable[[], tuple[Iterable[torch.Tensor], list[float]]]


def serve_reader(open_model: Callable[[Path], Look]) -> None:
    """Serve the demo: the vector, for each line.

    Arguments are the model's folder, and that of another copy to rehearse with: what is read from
    a disk afterwards is the model, and no code of a library.
    """
    torch.set_num_threads(1)
    folder, rehearsal = map(Path, sys.argv[1:])
    _touch(open_model(rehearsal))
    gc.collect()
    opened: list[Look] = []

    def read(_line: str) -> list[float]:
        if not opened:
            opened.append(open_model(folder))
        return _touch(opened[0])

    serve(read)


def _touch(look: Look) -> list[float]:
    tensors, vector = look()
    with torch.inference_mode():
        for tensor in tensors:
            tensor.sum()
    return vector
