"""A program that holds both versions of a model and answers each key by the weight in force.

python -m modelcache_testbed.demo.programs.client VOLUME CACHE KEYS

Each line makes it answer all keys anew and say how many got which answer.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import torch

import modelcache
from modelcache_testbed.demo.programs.lines import serve
from modelcache_testbed.demo.programs.minilm import SENTENCE, embed


def main() -> None:
    """Serve the demo."""
    torch.set_num_threads(1)
    volume, cache, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    attachment = modelcache.attach(cache, root=volume, timeout=60)
    keys = [f"request-{number}" for number in range(count)]
    answers: dict[str, list[float]] = {}
    on_canary: set[str] = set()

    def answer(track: str) -> list[float]:
        if track not in answers:
            version = attachment.version(track)
            answers[track] = embed(version.tensors(), version.path, SENTENCE)
        return answers[track]

    def split(_line: str) -> dict[str, Any]:
        nonlocal on_canary
        given = {key: attachment.choose(key) for key in keys}
        counted = Counter(tuple(answer(track)) for track in given.values())
        before, on_canary = on_canary, {key for key in keys if given[key] == "canary"}
        return {
            "weights": dict(attachment.weights()),
            "answers": [[list(vector), number] for vector, number in counted.items()],
            "came": len(on_canary - before),
            "went": len(before - on_canary),
        }

    serve(split)


if __name__ == "__main__":
    main()
