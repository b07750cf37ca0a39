"""From the header of a safetensors file to the smaller one with the wanted tensors alone: pure.

The same header and globs give the same bytes everywhere and always: the digest of the content
depends on them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from modelcache_api.cut import MAX_LITERAL_BYTES, Cut, join_ranges
from modelcache_api.keys import matches_tensor
from modelcache_api.manifest import SourceFile
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_api.safetensors_format import DTYPE_BITS, LENGTH_BYTES, header_length
from modelcache_api.safetensors_header import Read, Tensor, describe_safetensors_fault
from modelcache_operator.ports.sources import SourceError

_METADATA: Final = "__metadata__"
# Readers take the data to begin at a multiple of this; JSON takes spaces behind its end.
_ALIGNMENT: Final = 8
# About what a tensor's entry takes beside its name.
_ENTRY_BYTES: Final = 64


@dataclass(slots=True)
class TakenTensors:
    """What the globs take of one file. `matched` holds the globs that took something."""

    data_begin: int
    tensors: dict[str, Tensor] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    matched: set[str] = field(default_factory=set)


def take_tensors(file: SourceFile, read: Read, include: Sequence[str]) -> TakenTensors:
    """The tensors of which a glob matches the name; `read` gives bytes of the file.

    Raises:
        SourceError: NotAModel where the header is broken, SourceInvalid where too much matches.
    """
    taken = TakenTensors(0)
    left = MAX_LITERAL_BYTES

    def take(tensor: Tensor) -> None:
        nonlocal left
        globs = {glob for glob in include if matches_tensor(tensor.name, glob)}
        if not globs:
            return
        if tensor.name in taken.tensors:
            raise _not_a_model(file, f"it holds tensor {quote(tensor.name)} twice")
        left -= len(tensor.name.encode()) + _ENTRY_BYTES
        if left < 0:
            raise too_many_tensors()
        taken.tensors[tensor.name] = tensor
        taken.matched |= globs

    fault = describe_safetensors_fault(file.size_bytes, read, take, taken.metadata.update)
    if fault is not None:
        raise _not_a_model(file, fault)
    taken.data_begin = LENGTH_BYTES + header_length(read(0, LENGTH_BYTES))
    return taken


def cut_file(file: SourceFile, taken: TakenTensors) -> Cut:
    """The smaller safetensors file: a header of its own, then the wanted ranges of the source's."""
    ordered = _order(tuple(taken.tensors.values()))
    header: dict[str, Any] = {}
    if taken.metadata:
        header[_METADATA] = dict(sorted(taken.metadata.items()))
    position = 0
    for tensor in ordered:
        end = position + tensor.end - tensor.start
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    begin = taken.data_begin
    ranges = [(begin + tensor.start, begin + tensor.end) for tensor in ordered]
    literal = len(text).to_bytes(LENGTH_BYTES, "little") + text
    return Cut(file.size_bytes, literal, join_ranges(ranges), file.sha256)


def too_many_tensors() -> SourceError:
    """The error for parts that are in too many pieces to be handed to every node."""
    return SourceError(
        Reason.SOURCE_INVALID,
        "spec.load.include takes too many single tensors to describe them to every node: take "
        "whole layers, or leave spec.load out of a new ModelVersion",
    )


def _order(tensors: Sequence[Tensor]) -> list[Tensor]:
    """As in the source, so that neighbours are read by one request.

    Where one of them would not begin at a multiple of its type's size, which torch cannot view, the
    widest types come first, as the reference writer has them.
    """
    ordered = sorted(tensors, key=lambda one: (one.start, one.end, one.name))
    position = 0
    for tensor in ordered:
        if position % max(1, DTYPE_BITS[tensor.dtype] // 8):
            return sorted(ordered, key=lambda one: -DTYPE_BITS[one.dtype])
        position += tensor.end - tensor.start
    return ordered


def _not_a_model(file: SourceFile, fault: str) -> SourceError:
    return SourceError(Reason.NOT_A_MODEL, f"{quote(file.path)} is not a model: {fault}")
