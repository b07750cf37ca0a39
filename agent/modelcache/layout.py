"""Which safetensors files of a folder make up its model.

Repositories ship the same weights twice: numbered shards with an index, and one consolidated
file. Taking every match would double the memory and mix two models.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from modelcache.errors import BadFileError, LayoutError

_INDEX: Final = ".safetensors.index.json"
_SUFFIX: Final = ".safetensors"
_SHARD: Final = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.safetensors")
_MAX_INDEX_BYTES: Final = 256 << 20


def choose_weight_files(folder: Path) -> tuple[Path, ...]:
    """The files: what the one index names, else the one file, else the one whole set of shards.

    Raises:
        LayoutError: there are no weights, or more than one answer.
        BadFileError: the index is broken or names a file that is not there.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    indexes = [name for name in names if name.endswith(_INDEX)]
    if len(indexes) > 1:
        raise LayoutError(_ambiguous(folder, indexes))
    if indexes:
        return _read_index(folder, folder / indexes[0])
    files = [name for name in names if name.endswith(_SUFFIX)]
    sets = _group(files)
    if not sets:
        raise LayoutError(f"{folder} holds no safetensors file: name its folder, e.g. 'unet'")
    if len(sets) > 1:
        raise LayoutError(_ambiguous(folder, files))
    return tuple(folder / name for name in sets[0])


def _group(files: list[str]) -> list[list[str]]:
    """Single files, and sets of shards that are whole."""
    single = [[name] for name in files if not _SHARD.fullmatch(name)]
    shards: dict[tuple[str, str], list[str]] = {}
    for name in files:
        if found := _SHARD.fullmatch(name):
            shards.setdefault((found["stem"], found["count"]), []).append(name)
    return single + [names for (_, count), names in shards.items() if len(names) == int(count)]


def _read_index(folder: Path, index: Path) -> tuple[Path, ...]:
    size = index.stat().st_size
    if size > _MAX_INDEX_BYTES:
        raise BadFileError(f"{index}: an index of {size} bytes; at most {_MAX_INDEX_BYTES}")
    try:
        document: Any = json.loads(index.read_bytes())
        names = sorted(set(document["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadFileError(f"{index}: it has no weight_map of tensors to files") from None
    for name in names:
        if not isinstance(name, str) or "/" in name or not (folder / name).is_file():
            raise BadFileError(f"{index}: it names {name!r}, which is not in {folder}")
    if not names:
        raise LayoutError(f"{index} names no file")
    return tuple(folder / name for name in names)


def _ambiguous(folder: Path, names: list[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:8])
    return f"{folder} holds more than one set of weights ({listed}): name them with files=[...]"
