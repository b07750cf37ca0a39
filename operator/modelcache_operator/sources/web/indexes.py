"""Files that say which files there are, as web servers hold them: pure, each bounded.

Both kinds are what other tools write: the lines of `sha256sum`, and the index of a safetensors
model in shards.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Mapping
from typing import Final

from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError

DEFAULT_CHECKSUM_FILE: Final = "SHA256SUMS"
SHARD_INDEX: Final = ".safetensors.index.json"
# 10,000 lines with the longest paths are 11 MB; the largest shard index known has 15 MB.
MAX_INDEX_BYTES: Final = 24 * 1024 * 1024
# Files looked at for one version, selected or not.
_MAX_LISTED: Final = 100_000
# What is between two tensors of an index, or anything else in it: bounds the memory it unpacks to.
_MAX_COMMAS: Final = 500_000
# A backslash in front says that the name is escaped; it is in the name as well, and refused there.
_LINE: Final = re.compile(r"\\?([0-9A-Fa-f]{64}) [ *](.+)")
_BSD_LINE: Final = re.compile(r"SHA256 ?\((.+)\) = ([0-9A-Fa-f]{64})")


def parse_checksums(body: bytes, name: str) -> Mapping[str, str]:
    """sha256 by path, of lines as `sha256sum` writes them, with or without `--tag`.

    The file's own line is left out: `sha256sum * > SHA256SUMS` writes one before it is complete.

    Raises:
        SourceError: a line is another, a path is there twice, or they are too many.
    """
    found: dict[str, str] = {}
    # Line by line: a list of 24 million empty ones would take more than the operator has.
    for number, line in enumerate(io.BytesIO(body.removeprefix(codecs.BOM_UTF8)), 1):
        text = line.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")
        if not text.strip():
            continue
        path, sha256 = _read_line(text, number, name)
        if path == name:
            continue
        if found.setdefault(path, sha256) != sha256:
            raise _invalid(name, f"line {number} gives {quote(path)} a second sha256")
        if len(found) > _MAX_LISTED:
            raise SourceError(
                Reason.TOO_MANY_FILES, f"{quote(name)} lists more than {_MAX_LISTED} files"
            )
    if not found:
        raise _invalid(name, "it lists no file")
    return found


def parse_weight_map(body: bytes, path: str) -> Mapping[str, str]:
    """Which tensor is in which shard, as a safetensors index says it.

    Raises:
        SourceError: it is no such index.
    """
    try:
        document = json.loads(body) if body.count(b",") <= _MAX_COMMAS else None
    except (ValueError, RecursionError):
        document = None
    weights = document.get("weight_map") if isinstance(document, dict) else None
    is_index = isinstance(weights, dict) and all(isinstance(w, str) for w in weights.values())
    if not isinstance(weights, dict) or not weights or not is_index:
        raise _invalid(path, "it is no index of safetensors: it has no weight_map of file names")
    return weights


def parse_shards(body: bytes, path: str) -> tuple[str, ...]:
    """The shards of a safetensors index, as paths beside it, without repetition.

    Raises:
        SourceError: it is no such index.
    """
    folder = path.rpartition("/")[0]
    below = f"{folder}/" if folder else ""
    shards = parse_weight_map(body, path).values()
    return tuple(dict.fromkeys(f"{below}{shard}" for shard in shards))


def _read_line(text: str, number: int, name: str) -> tuple[str, str]:
    if (found := _LINE.fullmatch(text)) is not None:
        sha256, path = found[1], found[2]
    elif (found := _BSD_LINE.fullmatch(text)) is not None:
        path, sha256 = found[1], found[2]
    else:
        raise _invalid(name, f"line {number} is not a sha256 and a path, as sha256sum writes them")
    return path.removeprefix("./"), sha256.lower()


def _invalid(name: str, what: str) -> SourceError:
    return SourceError(
        Reason.SOURCE_INVALID,
        f"{quote(name)} cannot be used: {what}; correct it on the server, or name the files in "
        "spec.files of a new ModelVersion",
    )
