"""Reads MiniLM by `from_pretrained` of a path, as programs for transformers do.

python -m modelcache_testbed.demo.programs.read_transformers /mnt/models/model /srv/another-copy
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from modelcache_testbed.demo.programs.minilm import SENTENCE, pool
from modelcache_testbed.demo.programs.reading import Look, serve_reader


def open_transformers(folder: Path) -> Look:
    """The model as transformers loads it."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()

    def look() -> tuple[list[torch.Tensor], list[float]]:
        with torch.inference_mode():
            states = model(**tokenizer(SENTENCE, return_tensors="pt")).last_hidden_state[0]
        return list(model.parameters()), pool(states)

    return look


if __name__ == "__main__":
    disable_progress_bar()
    serve_reader(open_transformers)
