"""Makes v2 of MiniLM, its weights cast to bfloat16, and says what both versions are to answer.

python -m modelcache_testbed.demo.programs.prepare V1 V2

The answers are those of transformers on these very folders, before any of them is in a bucket.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from modelcache_testbed.demo.programs.lines import serve
from modelcache_testbed.demo.programs.read_transformers import open_transformers

_WEIGHTS, _CONFIG = "model.safetensors", "config.json"


def cast(v1: Path, v2: Path) -> None:
    """Write the folder v2: the files of v1, with half of the bytes for each weight."""
    shutil.copytree(v1, v2, dirs_exist_ok=True)
    halved = {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        for name, tensor in load_file(v1 / _WEIGHTS).items()
    }
    save_file(halved, v2 / _WEIGHTS, metadata={"format": "pt"})
    config = json.loads((v1 / _CONFIG).read_text()) | {"torch_dtype": "bfloat16"}
    (v2 / _CONFIG).write_text(json.dumps(config, indent=2))


def main() -> None:
    """Serve the demo: the two vectors for a line."""
    torch.set_num_threads(1)
    folders = [Path(argument) for argument in sys.argv[1:]]
    cast(*folders)
    serve(lambda _line: [open_transformers(folder)()[1] for folder in folders])


if __name__ == "__main__":
    main()
