"""One process of `readers-memory`: `python memory_reader.py WHO FILE`.

It has its libraries loaded, does what each line on its input says, and answers with a line of JSON:
`load` all tensors, touch and keep them; `look` what the process has in memory, in bytes.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")
OURS = "ours"
SAFETENSORS = "safetensors + torch"
PEERS = {"Run:ai streamer": "runai_model_streamer", "fastsafetensors": "fastsafetensors"}
KEYS = ("Pss", "Private_Clean", "Private_Dirty", "Anonymous")

Tensors = dict[str, Any]


def with_library(path: Path) -> tuple[object, Tensors]:
    library = importlib.import_module("modelcache")
    return library, library.attach_folder(path.parent).version().tensors()


def with_safetensors(path: Path) -> tuple[object, Tensors]:
    return None, importlib.import_module("safetensors.torch").load_file(path)


def with_streamer(path: Path) -> tuple[object, Tensors]:
    streamer = importlib.import_module("runai_model_streamer").SafetensorsStreamer()
    opened = streamer.__enter__()
    opened.stream_file(str(path))
    return streamer, dict(opened.get_tensors())


def with_fast(path: Path) -> tuple[object, Tensors]:
    library = importlib.import_module("fastsafetensors")
    loader = library.SafeTensorsFileLoader(library.SingleGroup(), device="cpu", nogds=True)
    loader.add_filenames({0: [str(path)]})
    copied = loader.copy_files_to_device()
    return (loader, copied), {name: copied.get_tensor(name) for name in loader.get_keys()}


CONTENDERS: dict[str, tuple[str, Callable[[Path], tuple[object, Tensors]]]] = {
    OURS: ("modelcache", with_library),
    SAFETENSORS: ("safetensors.torch", with_safetensors),
    "Run:ai streamer": ("runai_model_streamer", with_streamer),
    "fastsafetensors": ("fastsafetensors", with_fast),
}


def read_as_told(who: str, path: Path) -> None:
    """Until the input ends."""
    module, load = CONTENDERS[who]
    torch = importlib.import_module("torch")
    importlib.import_module(module)
    held: tuple[object, Tensors] | None = None
    for line in sys.stdin:
        if line.strip() == "load":
            held = load(path)
            for tensor in held[1].values():
                tensor.view(torch.uint8).flatten()[::PAGE].sum()
            print("{}", flush=True)
        else:
            print(json.dumps(look()), flush=True)
    # Ends without tearing down: that is nobody's figure.
    os._exit(0)


def look() -> dict[str, int]:
    """What this process has in memory, in bytes."""
    text = Path("/proc/self/smaps_rollup").read_text()
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE))
    return {key: int(found[key]) * 1024 for key in KEYS}


if __name__ == "__main__":
    read_as_told(sys.argv[1], Path(sys.argv[2]))
