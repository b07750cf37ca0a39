"""Where all tensors of a version lie: read from its files, or from the agent's shared index."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from modelcache.errors import BadFileError
from modelcache.header import Header, TensorInfo, parse_header, read_header
from modelcache_api.safetensors_format import LENGTH_BYTES
from modelcache_api.volume_index import BadIndexError, read_index


class TensorIndex:
    """Tensors by name, in the order of the files. `is_shared`: no file had to be opened."""

    def __init__(self, headers: Sequence[Header], *, is_shared: bool) -> None:
        self.is_shared = is_shared
        self._headers: dict[str, Header] = {}
        for header in headers:
            for name in header.names():
                if name in self._headers:
                    raise BadFileError(f"{header.path}: tensor {name!r} is in another file, too")
                self._headers[name] = header

    def __len__(self) -> int:
        return len(self._headers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def info(self, name: str) -> TensorInfo:
        """Type, shape and place of a tensor. Raises KeyError, BadFileError."""
        return self._headers[name].info(name)


def read_files(files: Sequence[Path]) -> TensorIndex:
    """The index of these files. Raises BadFileError."""
    headers = []
    for path in files:
        with path.open("rb", buffering=0) as file:
            headers.append(read_header(path, file, os.fstat(file.fileno()).st_size))
    return TensorIndex(headers, is_shared=False)


def read_shared(data: memoryview, version: Path, files: Sequence[Path]) -> TensorIndex:
    """The same, as the agent has read it; `data` may be closed afterwards. Raises BadFileError."""
    try:
        found = {entry.path: entry for entry in read_index(data)}
    except BadIndexError as error:
        raise BadFileError(f"the agent's index of {version}: {error}") from error
    headers = []
    for path in files:
        entry = found.get(path.relative_to(version).as_posix())
        if entry is None:
            raise BadFileError(f"{path} is not in the agent's index: it is no safetensors file")
        body = bytes(data[entry.header_begin : entry.header_begin + entry.header_bytes])
        headers.append(
            parse_header(path, body, LENGTH_BYTES + entry.header_bytes, entry.size_bytes)
        )
    return TensorIndex(headers, is_shared=True)
