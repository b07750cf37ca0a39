"""The byte kit of the case log: small files with the verdict of the reference reader."""

from __future__ import annotations

import json
import struct

DATA = bytes(range(16))
TWO = {
    "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
}


def raw(header: bytes, data: bytes = DATA, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def make(header: object, data: bytes = DATA, pad: str = "") -> bytes:
    return raw((json.dumps(header, separators=(",", ":")) + pad).encode(), data)


def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


K01 = make(TWO)
POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 12345678\n"
)
PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head>".ljust(260)
XML_ERROR = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>".ljust(78)
TEN = ["I64", "F64", "F32", "BF16", "I32", "F16", "I16", "I8", "U8", "BOOL"]
SIZES = [8, 8, 4, 2, 4, 2, 2, 1, 1, 1]


def ten_dtypes() -> bytes:
    header, end = {}, 0
    for dtype, size in zip(TEN, SIZES, strict=True):
        header[dtype.lower()] = tensor(dtype, [3], end, end + 3 * size)
        end += 3 * size
    return make(dict(reversed(header.items())), bytes(end))


ACCEPTED = {
    "K01 base": K01,
    "K14 padded with spaces": make(TWO, pad="   "),
    "K14 length not a multiple of 8": make(TWO, pad=" " if len(json.dumps(TWO)) % 8 == 0 else ""),
    "K16 empty f8": make({**TWO, "e": tensor("F8_E4M3", [0], 16, 16)}),
    "K17 empty between": make({**TWO, "e": tensor("F32", [0, 7], 8, 8)}),
    "K18 scalar": make({"s": tensor("F32", [], 0, 4), "r": tensor("U8", [12], 4, 16)}),
    "K19 no tensors": raw(b"{}      ", b""),
    "K20 bf16": make({"w": tensor("BF16", [8], 0, 16)}),
    "K21 f8_e4m3": make({"w": tensor("F8_E4M3", [16], 0, 16)}),
    "K22 f8_e8m0": make({"w": tensor("F8_E8M0", [16], 0, 16)}),
    "K23 f4": make({"w": tensor("F4", [32], 0, 16)}),
    "K24 ten dtypes out of order": ten_dtypes(),
    "metadata": make({"__metadata__": {"format": "pt", "x": "<script>"}, **TWO}),
    "metadata is null": make({"__metadata__": None, **TWO}),
    "a field the reader does not know": make({"w": {**tensor("U8", [16], 0, 16), "more": [1]}}),
    "names in another script": make({"é\u4e00\U0001f600": tensor("U8", [16], 0, 16)}),
    "white space everywhere": raw(json.dumps(TWO, indent=3).encode()),
    "leading space": raw(b" " + K01[8:-16]),
    "unsigned and complex": make({"c": tensor("C64", [1], 0, 8), "u": tensor("U64", [1], 8, 16)}),
    "f6": make({"w": tensor("F6_E2M3", [16], 0, 12), "r": tensor("U8", [4], 12, 16)}),
    "fnuz": make({"w": tensor("F8_E4M3FNUZ", [8], 0, 8), "r": tensor("F8_E5M2FNUZ", [8], 8, 16)}),
}

REFUSED = {
    "K02 last byte missing": K01[:-1],
    "K03 cut inside the header": K01[:20],
    "K04 nothing": b"",
    "K04 seven bytes": bytes(7),
    "K04 eight zeros": bytes(8),
    "K05 pointer": POINTER,
    "K06 page": PAGE,
    "K07 xml": XML_ERROR,
    "K08 byte-order mark": raw(b"\xef\xbb\xbf" + K01[8:-16]),
    "K09 big-endian length": K01[:8][::-1] + K01[8:],
    "K10 length beyond the file": raw(K01[8:-16], length=1_000_000),
    "K11 length over the limit": raw(K01[8:-16], length=100_000_001),
    "K12 a list": make([]),
    "K13 number in metadata": make({"__metadata__": {"a": 1}, **TWO}),
    "K15 unknown dtype": make({"w": tensor("Q4_K", [16], 0, 16)}),
    "one byte too many": K01 + b"x",
    "a hole": make({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 8, 12)}, bytes(12)),
    "an overlap": make({"a": tensor("U8", [10], 0, 10), "b": tensor("U8", [8], 8, 16)}),
    "does not start at zero": make({"a": tensor("U8", [8], 8, 16)}),
    "end before begin": make({"a": tensor("U8", [8], 16, 8)}),
    "size and shape differ": make({"a": tensor("F32", [3], 0, 16)}),
    "shape overflows": make({"a": tensor("F32", [2**40, 2**40], 0, 16)}),
    "half a byte": make({"w": tensor("F4", [31], 0, 16)}),
    "minus zero": raw(
        b'{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]},'
        b'"b":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}'
    ),
    "negative size": make({"a": tensor("U8", [-16], 0, 16)}),
    "size is a fraction": make({"a": tensor("U8", [16.0], 0, 16)}),
    "size is true": make({"a": tensor("U8", [True, 16], 0, 16)}),
    "three offsets": make({"a": {"dtype": "U8", "shape": [16], "data_offsets": [0, 8, 16]}}),
    "no dtype": make({"a": {"shape": [16], "data_offsets": [0, 16]}}),
    "dtype twice": raw(b'{"a":{"dtype":"U8","dtype":"U8","shape":[16],"data_offsets":[0,16]}}'),
    "a tensor is a list": make({"a": [1]}),
    "metadata is a list": make({"__metadata__": [], **TWO}),
    "trailing comma": raw(K01[8:-17] + b",}"),
    "text behind the end": raw(K01[8:-16] + b"x"),
    "not UTF-8": raw(K01[8:-16].replace(b'"a"', b'"\xff"')),
    "half a surrogate pair": raw(K01[8:-16].replace(b'"a"', b'"\\ud800"')),
    "NaN": raw(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,16]}}'),
    "nested without end": raw(b'{"a":' + b"[" * 5000),
    "a huge number": raw(
        b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,16]}}'
    ),
    "control character in a name": raw(K01[8:-16].replace(b'"a"', b'"\x01"')),
}
