"""all-MiniLM-L6-v2 in plain torch: a sentence in, a vector out. Weights are used where they lie."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional

SENTENCE = "a pod finds its model where the scheduler sends it"


def embed(weights: Mapping[str, torch.Tensor], folder: Path, sentence: str) -> list[float]:
    """The vector of a sentence, of length 1; ``folder`` has configuration and tokenizer."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    ids = torch.tensor(tokenizer.encode(sentence).ids)
    with torch.inference_mode():
        return pool(_encode(weights, config, ids))


def pool(states: torch.Tensor) -> list[float]:
    """The mean over the tokens, of length 1, as the model's own pooling says."""
    vector: list[float] = functional.normalize(states.float().mean(0), dim=0).tolist()
    return vector


def _encode(
    weights: Mapping[str, torch.Tensor], config: Mapping[str, Any], ids: torch.Tensor
) -> torch.Tensor:
    def norm(states: torch.Tensor, at: str) -> torch.Tensor:
        scale, shift = (weights[f"{at}.LayerNorm.{part}"] for part in ("weight", "bias"))
        return functional.layer_norm(
            states, states.shape[-1:], scale, shift, config["layer_norm_eps"]
        )

    def dense(states: torch.Tensor, at: str) -> torch.Tensor:
        return functional.linear(states, weights[f"{at}.weight"], weights[f"{at}.bias"])

    def heads(states: torch.Tensor) -> torch.Tensor:
        return states.unflatten(-1, (config["num_attention_heads"], -1)).transpose(0, 1)

    words, places, kinds = (
        weights[f"embeddings.{part}_embeddings.weight"]
        for part in ("word", "position", "token_type")
    )
    states = norm(words[ids] + places[: len(ids)] + kinds[0], "embeddings")
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        asked = (
            heads(dense(states, f"{layer}.attention.self.{part}"))
            for part in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(*asked).transpose(0, 1).flatten(1)
        states = norm(
            states + dense(mixed, f"{layer}.attention.output.dense"), f"{layer}.attention.output"
        )
        wide = functional.gelu(dense(states, f"{layer}.intermediate.dense"))
        states = norm(states + dense(wide, f"{layer}.output.dense"), f"{layer}.output")
    return states
