"""The tensors of one or more safetensors files, on the pages that all readers share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from modelcache.cuts import MOST_READERS, Cut, Slice, make_cuts, split_tensors
from modelcache.errors import BadFileError, ClosedError, UnsupportedDtypeError
from modelcache.file_map import FileMap, count_private_bytes
from modelcache.header import Header, TensorInfo, read_header

if TYPE_CHECKING:
    import torch

    from modelcache.layer_stream import ModuleStream

# safetensors' names of types in numpy's words. What is not here numpy cannot express.
_NUMPY = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}


class Weights:
    """Tensors by name. What is handed out keeps its file's map alive; nothing has to be closed.

    `close`, or the end of a context, gives up this object's own hold on the maps: those that
    nobody has a tensor of are unmapped at once.
    """

    def __init__(self, files: Sequence[Path], *, read_only: bool = False) -> None:
        self.read_only = read_only
        self._maps: dict[Path, FileMap] = {}
        self._is_closed = False
        self._headers: dict[str, Header] = {}
        self.metadata: dict[str, str] = {}
        self.pageable_bytes = 0
        """Bytes that went to a card through memory that could not be page-locked."""
        for path in files:
            self._open(path)

    def _open(self, path: Path) -> None:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            header = read_header(path, file, size)
            self._maps[path] = FileMap(path, file, size, read_only=self.read_only)
        for name in header.names():
            if name in self._headers:
                raise BadFileError(f"{path}: tensor {name!r} is in another file, too")
            self._headers[name] = header
        self.metadata.update(header.metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hand out no more. May be called again; tensors stay as they are."""
        self._maps.clear()
        self._headers.clear()
        self._is_closed = True

    def __len__(self) -> int:
        return len(self._headers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __contains__(self, name: object) -> bool:
        return name in self._headers

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that were opened."""
        return tuple(self._maps)

    @property
    def copied_bytes(self) -> int:
        """Bytes that had to be copied because a file could not be mapped."""
        return sum(found.copied_bytes for found in self._maps.values())

    def private_bytes(self) -> int:
        """Bytes that this process no longer shares, because it wrote to their pages."""
        return count_private_bytes(frozenset(path.resolve() for path in self._maps))

    def info(self, name: str) -> TensorInfo:
        """Type, shape and place of a tensor. Raises KeyError, BadFileError, ClosedError."""
        self._refuse_if_closed()
        return self._headers[name].info(name)

    def raw(self, name: str) -> memoryview:
        """The bytes of a tensor, whatever its type."""
        found = self.info(name)
        buffer = self._maps[found.file].buffer
        return buffer[found.offset : found.offset + found.size_bytes]

    def numpy(self, name: str) -> Any:
        """The tensor as a numpy array on the shared pages.

        Raises:
            UnsupportedDtypeError: numpy has no such type (BF16 and those of 8 bits and less).
        """
        import numpy as np  # noqa: PLC0415 - only where it is used

        found = self.info(name)
        if found.dtype not in _NUMPY:
            raise UnsupportedDtypeError(
                f"numpy has no type for {found.dtype} of tensor {name!r}: take raw() or tensor()"
            )
        return np.frombuffer(self.raw(name), dtype=_NUMPY[found.dtype]).reshape(found.shape)

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor for torch, on the shared pages; a slice of it touches its own pages alone.

        Raises:
            UnsupportedDtypeError: torch has no such type, or packs it otherwise (F4, F6).
        """
        from modelcache.torch_view import view  # noqa: PLC0415 - torch only where it is used

        found = self.info(name)
        return view(found, self._maps[found.file].buffer)

    def tensors(
        self, names: Iterable[str] | None = None, slices: Mapping[str, Slice] | None = None
    ) -> dict[str, torch.Tensor]:
        """Tensors for torch by name, on the shared pages; nothing is read yet.

        Args:
            names: which; None: all.
            slices: of which only a part: `(dimension, start, stop)`, or slices as torch takes them.

        Raises:
            SelectionError: there is no such tensor, or no such part of it.
            UnsupportedDtypeError: as `tensor`.
        """
        from modelcache.torch_view import view  # noqa: PLC0415 - torch only where it is used

        found = {}
        for cut in self._select(names, slices):
            whole = view(cut.info, self._maps[cut.info.file].buffer)
            found[cut.info.name] = whole if cut.is_whole else whole[cut.index]
        return found

    def to(
        self,
        device: torch.device | str,
        names: Iterable[str] | None = None,
        slices: Mapping[str, Slice] | None = None,
        *,
        readers: int = MOST_READERS,
    ) -> dict[str, torch.Tensor]:
        """Copies of tensors on a device, by name: `cpu`, `cuda` or `meta`. All there on return.

        Only the bytes of the names and slices are read. On the CPU they are read into place. To a
        card they go by as many page-locked buffers of 16 MiB as there are readers, or through
        pageable memory with a `PageableWarning`; that path was never run on a card, and is
        experimental. `meta` reads nothing.

        Args:
            device: where to; `cuda` is the current card.
            names: as `tensors`.
            slices: as `tensors`.
            readers: threads that read, 2 to 4.

        Raises:
            NoDeviceError: torch has no such device here.
            SelectionError, UnsupportedDtypeError: as `tensors`.
            BadFileError, OSError: a file cannot be read, or is no longer the one that was opened.
            torch.OutOfMemoryError: the device has no room for them; nothing stays there.
        """
        from modelcache.bring import bring  # noqa: PLC0415 - torch only where it is used

        cuts = self._select(names, slices)
        is_part = names is not None or bool(slices)
        found, pageable = bring(cuts, self._maps, device, readers=readers, is_part=is_part)
        self.pageable_bytes += pageable
        return found

    def split(self, dimensions: Mapping[str, int], rank: int, ranks: int) -> dict[str, Slice]:
        """The slices of one rank of a tensor-parallel group, for `tensors` and `to`.

        Args:
            dimensions: globs of names, and the dimension along which their tensors are cut; the
                first glob that matches counts. What none matches stays whole.
            rank: from 0 on.
            ranks: how many there are.

        Raises:
            SelectionError: a glob matches nothing, or a tensor cannot be cut into equal parts.
            ValueError: there is no such rank.
        """
        return split_tensors([self.info(name) for name in self], dimensions, rank, ranks)

    def _select(self, names: Iterable[str] | None, slices: Mapping[str, Slice] | None) -> list[Cut]:
        self._refuse_if_closed()
        return make_cuts(self._headers, self.info, names, slices)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ClosedError("these weights were closed: open them again with safetensors()")

    @overload
    def stream_layers(
        self, what: Sequence[str], device: torch.device | str, *, ahead: int = 1
    ) -> Iterator[tuple[str, dict[str, torch.Tensor]]]: ...

    @overload
    def stream_layers(
        self, what: torch.nn.Module, device: torch.device | str, *, ahead: int = 1
    ) -> ModuleStream: ...

    def stream_layers(
        self,
        what: torch.nn.Module | Sequence[str],
        device: torch.device | str,
        *,
        ahead: int = 1,
    ) -> ModuleStream | Iterator[tuple[str, dict[str, torch.Tensor]]]:
        """Run a model that is larger than the device: layer by layer, the next one read meanwhile.

        Of a module, best built on the device `meta`: a context manager; inside of it the module is
        called as ever, as often as you like. Of names: an iterator of (name, tensors below it).

        Args:
            what: the module, or names of layers such as `encoder.layer.0`, in order.
            device: where the layers run.
            ahead: layers that are read ahead, each of which takes its room on the device.

        Raises:
            LayoutError: the module has no list of layers, or needs what the files lack.
        """
        from modelcache.layer_stream import (  # noqa: PLC0415 - torch only where it is used
            ModuleStream,
            stream_names,
        )

        if isinstance(what, Sequence):
            names = (what,) if isinstance(what, str) else what
            return stream_names(self, names, device, ahead)
        return ModuleStream(self, what, device, ahead)
