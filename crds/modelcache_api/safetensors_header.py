"""Structural check of a safetensors file, with the verdicts of the reference reader. Pure.

The header is read through a small window, entry by entry, so that its memory is bounded: what is
held per tensor is one number, never a JSON tree; whoever wants more takes it on the way.
Limit of the reference and of this check: a header of 100,000,000 bytes. It is stricter in two
points that no writer makes use of: a tensor's name given twice, and a tensor's entry as a list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

from modelcache_api.safetensors_format import (
    DTYPE_BITS,
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    header_length,
)

_WINDOW_BYTES: Final = 1 << 20
_USIZE_BITS: Final = 64
_MAX_USIZE: Final = 2**_USIZE_BITS - 1
_SPACE: Final = " \t\n\r"

Read = Callable[[int, int], bytes]
"""`read(offset, length)`: exactly these bytes of the file."""


class Tensor(NamedTuple):
    """One tensor; `start` and `end` count from the beginning of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


OnTensor = Callable[[Tensor], object]
OnMetadata = Callable[[dict[str, str]], object]


class _RefusedError(Exception):
    """The header is not acceptable; the message says why."""


def describe_safetensors_fault(  # noqa: PLR0911 - a ladder of early returns
    size_bytes: int,
    read: Read,
    on_tensor: OnTensor | None = None,
    on_metadata: OnMetadata | None = None,
) -> str | None:
    """Why the file is not a loadable safetensors file, or None if it is one.

    `on_tensor` and `on_metadata` are given what is found on the way, before all of it is judged.
    """
    if size_bytes < LENGTH_BYTES:
        return f"it has {size_bytes} bytes, too few for a safetensors header"
    length = header_length(read(0, LENGTH_BYTES))
    if length > MAX_HEADER_BYTES:
        return f"its safetensors header claims {length} bytes, the limit is {MAX_HEADER_BYTES}"
    if length + LENGTH_BYTES > size_bytes:
        return f"its safetensors header claims {length} bytes, the file has only {size_bytes}"
    try:
        end = _check_tensors(_Window(read, length), on_tensor, on_metadata)
    except _RefusedError as refusal:
        return f"its safetensors header is invalid: {refusal}"
    except RecursionError:
        return "its safetensors header is invalid: it is nested too deeply"
    covered = LENGTH_BYTES + length + end
    if covered != size_bytes:
        return f"its safetensors header covers {covered} bytes, the file has {size_bytes}"
    return None


class _Window:
    """Decodes the header's text a piece at a time."""

    def __init__(self, read: Read, length: int) -> None:
        self._read = read
        self._next = LENGTH_BYTES
        self._end = LENGTH_BYTES + length
        self._pending = b""
        self.text = ""
        self.position = 0

    def grow(self) -> bool:
        """Append more text, dropping what was consumed; False at the header's end."""
        self.text = self.text[self.position :]
        self.position = 0
        wanted = min(max(_WINDOW_BYTES, len(self.text)), self._end - self._next)
        if wanted == 0:
            if self._pending:
                raise _RefusedError("it is not valid UTF-8")
            return False
        raw = self._pending + self._read(self._next, wanted)
        self._next += wanted
        try:
            self.text += raw.decode()
            self._pending = b""
        except UnicodeDecodeError as error:
            cut_short = error.end == len(raw) and len(raw) - error.start < 4  # noqa: PLR2004
            if not cut_short or self._next == self._end:
                raise _RefusedError("it is not valid UTF-8") from None
            self.text += raw[: error.start].decode()
            self._pending = raw[error.start :]
        return True

    def peek(self) -> str:
        """The next character that is not white space, or '' at the end."""
        while True:
            while self.position < len(self.text):
                if self.text[self.position] not in _SPACE:
                    return self.text[self.position]
                self.position += 1
            if not self.grow():
                return ""

    def expect(self, wanted: str) -> None:
        """Consume one punctuation mark."""
        found = self.peek()
        if found != wanted:
            raise _RefusedError(f"{wanted!r} was expected, found {found[:1]!r}")
        self.position += 1

    def value(self) -> Any:
        """Consume one JSON value."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.position)
            except json.JSONDecodeError:
                if self.grow():
                    continue
                raise _RefusedError("it is not valid JSON") from None
            except ValueError as error:
                raise _RefusedError(str(error)[:120]) from None
            if end == len(self.text) and self.grow():
                continue  # a number could go on behind the window
            self.position = end
            return value


def _unique(pairs: list[tuple[str, Any]]) -> _Pairs:
    return _Pairs(pairs)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys in order, doubles included."""


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(f"it holds {name}")


def _whole_number(text: str) -> int | float:
    """Negative numbers, -0 too, are no sizes: as a float they are refused where a size is due."""
    return float(text) if text.startswith("-") else int(text)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_int=_whole_number,
    parse_constant=_refuse_constant,
    strict=True,
)


def _entries(window: _Window) -> Iterator[tuple[str, Any]]:
    window.expect("{")
    if window.peek() == "}":
        window.position += 1
    else:
        while True:
            if window.peek() != '"':
                raise _RefusedError("a tensor's name was expected")
            name = window.value()
            _check_text(name)
            window.expect(":")
            yield name, window.value()
            if window.peek() == "}":
                window.position += 1
                break
            window.expect(",")
    if window.peek():
        raise _RefusedError("there is text behind its end")


def _check_tensors(
    window: _Window, on_tensor: OnTensor | None, on_metadata: OnMetadata | None
) -> int:
    """Bytes that the tensors cover, from 0 without hole or overlap."""
    ranges: list[int] = []  # begin and end in one number: half the memory of a pair
    seen_metadata = False
    for name, value in _entries(window):
        if name == "__metadata__":
            if seen_metadata:
                raise _RefusedError("it holds __metadata__ twice")
            seen_metadata = True
            metadata = _read_metadata(value)
            if on_metadata is not None:
                on_metadata(metadata)
        else:
            tensor = _read_tensor(name, value)
            ranges.append(tensor.start << _USIZE_BITS | tensor.end)
            if on_tensor is not None:
                on_tensor(tensor)
    ranges.sort()
    end = 0
    for packed in ranges:
        start, stop = packed >> _USIZE_BITS, packed & _MAX_USIZE
        if start != end:
            kind = "a hole" if start > end else "an overlap"
            raise _RefusedError(f"there is {kind} at data offset {min(start, end)}")
        end = stop
    return end


def _read_metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, _Pairs):
        raise _RefusedError("__metadata__ is not an object")
    for key, text in value:
        if not isinstance(text, str):
            raise _RefusedError("__metadata__ holds a value that is not text")
        _check_text(key)
        _check_text(text)
    return dict(value)


def _read_tensor(name: str, value: Any) -> Tensor:
    if not isinstance(value, _Pairs):
        raise _RefusedError("a tensor's entry is not an object")
    fields = dict(value)
    if sum(key in _FIELDS for key, _ in value) != len(_FIELDS) or not fields.keys() >= _FIELDS:
        raise _RefusedError("a tensor's entry lacks or repeats dtype, shape or data_offsets")
    dtype = fields["dtype"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise _RefusedError(f"it holds the unknown dtype {str(dtype)[:32]!r}")
    shape = _sizes(fields["shape"], "shape")
    offsets = _sizes(fields["data_offsets"], "data_offsets")
    if len(offsets) != 2 or offsets[1] < offsets[0]:  # noqa: PLR2004 - begin and end
        raise _RefusedError("a tensor's data_offsets are not a begin and an end")
    bits = DTYPE_BITS[dtype]
    for size in shape:
        bits *= size
        if bits > _MAX_USIZE:
            raise _RefusedError("a tensor's shape overflows")
    if bits % 8:
        raise _RefusedError("a tensor does not end on a whole byte")
    if bits // 8 != offsets[1] - offsets[0]:
        raise _RefusedError(f"a tensor of {bits // 8} bytes claims {offsets[1] - offsets[0]} bytes")
    return Tensor(name, dtype, tuple(shape), offsets[0], offsets[1])


_FIELDS: Final = frozenset({"dtype", "shape", "data_offsets"})


def _sizes(value: Any, field: str) -> list[int]:
    if not isinstance(value, list) or isinstance(value, _Pairs):
        raise _RefusedError(f"a tensor's {field} is not a list")
    for size in value:
        if type(size) is not int or not 0 <= size <= _MAX_USIZE:
            raise _RefusedError(f"a tensor's {field} holds something that is not a size")
    return value


def _check_text(text: str) -> None:
    """Refuse lone surrogates, which JSON escapes can smuggle in and no reader accepts."""
    if not text.isascii() and any(0xD800 <= ord(char) <= 0xDFFF for char in text):  # noqa: PLR2004
        raise _RefusedError("it holds half a surrogate pair")
