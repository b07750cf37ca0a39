"""What both readers do: open a model when first asked, and each time touch all of it and embed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch.nn import functional

from modelcache_testbed.demo.programs.lines import serve

# All tensors, and the vector of the sentence.
Look = Callable[[], tuple[Iterable[torch.Tensor], list[float]]]


def serve_reader(open_model: Callable[[Path], Look]) -> None:
    """Serve the demo: the vector, for each line. The model's folder is the argument."""
    torch.set_num_threads(1)
    _warm_up()
    folder = Path(sys.argv[1])
    opened: list[Look] = []

    def read(_line: str) -> list[float]:
        if not opened:
            opened.append(open_model(folder))
        tensors, vector = opened[0]()
        with torch.inference_mode():
            for tensor in tensors:
                tensor.sum()
        return vector

    serve(read)


def _warm_up() -> None:
    """Run what a layer runs: the library's code is not read from a disk together with a model."""
    layer = torch.nn.TransformerEncoderLayer(384, 12, 1536, activation="gelu", batch_first=True)
    with torch.inference_mode():
        functional.normalize(layer.eval()(torch.rand(1, 12, 384)).mean(1)).sum()
