"""Which files are cut, and whether all of what was asked for is there: pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from modelcache_api.cut import MAX_LITERAL_BYTES, MAX_RANGES, Cut
from modelcache_api.manifest import SourceFile
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_api.weights_names import SAFETENSORS, is_weights_name
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.partial.cutting import too_many_tensors
from modelcache_operator.sources.web.indexes import SHARD_INDEX

# Sorted globs named in one message.
_SHOWN: Final = 4


def choose_weights(files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
    """The safetensors files.

    Raises:
        SourceError: there are none, or weights in a format that cannot be cut, or a file whose
            change between two ranges would go unnoticed.
    """
    weights = tuple(file for file in files if file.path.lower().endswith(SAFETENSORS))
    other = [f for f in files if is_weights_name(f.path) and f not in weights]
    if other:
        raise SourceError(
            Reason.SOURCE_INVALID,
            f"spec.load takes tensors out of safetensors files, and {quote(other[0].path)} is in "
            "another format: leave it out by spec.exclude of a new ModelVersion",
        )
    if not weights:
        raise SourceError(
            Reason.SOURCE_INVALID,
            "spec.load takes tensors out of safetensors files, and none is among the files of the "
            "source: correct spec.include, or leave spec.load out of a new ModelVersion",
        )
    for file in weights:
        if file.identity.startswith("version:sha256:"):
            raise SourceError(
                Reason.SOURCE_INVALID,
                f"the server gives {quote(file.path)} neither a strong ETag nor a Last-Modified, "
                "and its sha256 says nothing of a part: let it send one of them, or leave "
                "spec.load out of a new ModelVersion",
            )
    return weights


def check_globs(include: Iterable[str], matched: Collection[str]) -> None:
    """Every glob took a tensor.

    Raises:
        SourceError: TensorsNotFound.
    """
    idle = sorted(set(include) - set(matched))
    if idle:
        shown = ", ".join(quote(glob) for glob in idle[:_SHOWN])
        more = f" and {len(idle) - _SHOWN} more" if len(idle) > _SHOWN else ""
        raise SourceError(
            Reason.TENSORS_NOT_FOUND,
            f"no tensor has a name that spec.load.include {shown}{more} matches: globs stand for "
            "whole names, and tied weights are stored under one of their names; correct it in a "
            "new ModelVersion",
        )


def check_sizes(cuts: Iterable[Cut]) -> None:
    """The cuts of one version can be kept and handed out. Raises SourceError."""
    found = list(cuts)
    literals = sum(len(cut.literal) for cut in found)
    if literals > MAX_LITERAL_BYTES or sum(len(cut.ranges) for cut in found) > MAX_RANGES:
        raise too_many_tensors()


def rewrite_index(
    weight_map: Mapping[str, str], path: str, sizes: Mapping[str, Mapping[str, int]]
) -> bytes | None:
    """The index of what is left of its shards, or None if nothing is.

    `sizes` has the bytes of each tensor that is taken, by the path of its file.
    """
    folder = path.rpartition("/")[0]
    below = f"{folder}/" if folder else ""
    left = {
        name: shard for name, shard in weight_map.items() if name in sizes.get(below + shard, {})
    }
    if not left:
        return None
    total = sum(sizes[below + shard][name] for name, shard in left.items())
    document = {"metadata": {"total_size": total}, "weight_map": dict(sorted(left.items()))}
    return json.dumps(document, indent=2, ensure_ascii=True).encode() + b"\n"


def is_index(path: str) -> bool:
    """True if the file says which tensor is in which shard."""
    return path.endswith(SHARD_INDEX)
