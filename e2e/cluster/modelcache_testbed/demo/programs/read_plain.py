"""Reads MiniLM by safetensors and torch alone.

python -m modelcache_testbed.demo.programs.read_plain /mnt/models/model /srv/another-copy
"""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from modelcache_testbed.demo.programs.minilm import SENTENCE, embed
from modelcache_testbed.demo.programs.reading import Look, serve_reader


def open_plain(folder: Path) -> Look:
    """The model as a folder of files."""
    weights = load_file(folder / "model.safetensors")
    return lambda: (weights.values(), embed(weights, folder, SENTENCE))


if __name__ == "__main__":
    serve_reader(open_plain)
