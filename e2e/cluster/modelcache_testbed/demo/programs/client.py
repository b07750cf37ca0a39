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
from modelcache_testbed.waiting import wait_until


def main() -> None:
    """Serve the demo."""
    torch.set_num_threads(1)
    volume, cache, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    attachment = modelcache.attach(cache, root=volume, timeout=60)
    wait_until(
        lambda: len(attachment.versions()) > 1,
        seconds=60,
        what="the folder of the second version in the volume",
    )
    keys = [f"request-{number}" for number in range(count)]
    answers: dict[str, tuple[float, ...]] = {}
    given: dict[str, str] = {}

    def answer(version: modelcache.Version) -> tuple[float, ...]:
        """Loaded when the first key asks for it, and kept."""
        if version.name not in answers:
            answers[version.name] = tuple(embed(version.tensors(), version.path, SENTENCE))
        return answers[version.name]

    def choose() -> tuple[dict[str, int], dict[str, modelcache.Version]]:
        """All keys by the same weights: a change meanwhile begins it anew."""
        while True:
            weights = dict(attachment.weights())
            chosen = {key: attachment.choose_version(key) for key in keys}
            if weights == attachment.weights():
                return weights, chosen

    def split(_line: str) -> dict[str, Any]:
        weights, chosen = choose()
        counted = Counter(answer(version) for version in chosen.values())
        names = {key: version.name for key, version in chosen.items()}
        moved = Counter((given[key], names[key]) for key in given if given[key] != names[key])
        given.update(names)
        return {
            "weights": weights,
            "answers": [[vector, number] for vector, number in counted.items()],
            "moved": [[*pair, number] for pair, number in moved.items()],
            "misses": attachment.misses,
        }

    serve(split)


if __name__ == "__main__":
    main()
