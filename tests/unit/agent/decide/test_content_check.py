"""The verdicts of the reference reader, and names for what is not weights at all."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open

from fakes.safetensors_kit import (
    ACCEPTED,
    K01,
    PAGE,
    POINTER,
    REFUSED,
    XML_ERROR,
    make,
    raw,
    tensor,
)
from modelcache_agent.decide.content_check import (
    describe_content_fault,
    describe_foreign_content,
    header_bytes_needed,
)
from modelcache_api.safetensors_header import describe_safetensors_fault


def fault_of(body: bytes, name: str = "model.safetensors") -> str | None:
    def read(offset: int, length: int) -> bytes:
        assert offset + length <= len(body), "read beyond the file"
        return body[offset : offset + length]

    return describe_content_fault(name, len(body), read)


def reference_opens(body: bytes, folder: Path) -> bool:
    file = folder / "x.safetensors"
    file.write_bytes(body)
    try:
        with safe_open(file, "np") as opened:
            opened.keys()
    except (SafetensorError, OSError, ValueError):
        return False
    return True


@pytest.mark.parametrize("name", ACCEPTED)
def test_C26_kit_accepts_what_the_reference_accepts(name, tmp_path):
    assert reference_opens(ACCEPTED[name], tmp_path)
    assert fault_of(ACCEPTED[name]) is None


@pytest.mark.parametrize("name", REFUSED)
def test_C20_kit_refuses_what_the_reference_refuses(name, tmp_path):
    assert not reference_opens(REFUSED[name], tmp_path)
    assert fault_of(REFUSED[name]) is not None


HEADER = st.text('{}[]",:0123456789 aU8dtypeshofs_F32metad\\un\n', max_size=8)


@settings(max_examples=400, deadline=None)
@given(
    base=st.sampled_from([K01, *ACCEPTED.values()]),
    at=st.integers(8, 140),
    remove=st.integers(0, 6),
    insert=HEADER,
)
def test_mutated_headers_get_the_references_verdict(base, at, remove, insert, tmp_path_factory):
    length = struct.unpack("<Q", base[:8])[0]
    header, data = base[8 : 8 + length], base[8 + length :]
    at = min(at - 8, len(header))
    changed = raw(header[:at] + insert.encode() + header[at + remove :], data)
    opens = reference_opens(changed, tmp_path_factory.getbasetemp())
    assert (fault_of(changed) is None) == opens


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (POINTER, "a Git LFS pointer"),
        (PAGE, "an HTML page"),
        (b"\n  <HTML><body>", "an HTML page"),
        (b"<!-- x -->\n<html>", "an HTML page"),
        (XML_ERROR, "an S3 XML error body"),
        (b"\xef\xbb\xbf<Error><Code>x</Code></Error>", "an S3 XML error body"),
        (b"<?xml version='1.0'?><ListBucketResult>", "an XML document <ListBucketResult>"),
        (b"\x1f\x8b\x08\x00" + bytes(20), "gzip-compressed data"),
        (b"8000;chunk-signature=0123456789abcdef\r\n" + K01, "aws-chunked upload framing"),
        (b"84\r\n" + K01, "aws-chunked upload framing"),
    ],
)
@pytest.mark.parametrize("name", ["a/model.safetensors", "pytorch_model.bin", "M.ONNX", "x.gguf"])
def test_C20_message_names_the_kind_found(name, body, kind):
    fault = fault_of(body, name)
    assert fault is not None
    assert kind in fault


@pytest.mark.parametrize("name", ["config.json", "index.html", "README.md", "vocab.txt"])
@pytest.mark.parametrize("body", [b"", PAGE, POINTER, XML_ERROR])
def test_other_names_are_never_refused(name, body):
    assert fault_of(body, name) is None


@pytest.mark.parametrize("name", ["m.safetensors", "m.bin", "m.gguf", "m.pt", "m.pth", "m.onnx"])
def test_C29_empty_weights_are_refused(name):
    assert fault_of(b"", name) == "it is empty"


def test_gguf_is_known_by_its_first_word():
    assert fault_of(b"GGUF" + bytes(40), "m.gguf") is None
    assert fault_of(b"GGML" + bytes(40), "m.gguf") is not None


@given(st.binary(min_size=1, max_size=600))
def test_raw_weights_are_hardly_ever_taken_for_text(body):
    """Random bytes hold control characters; only documents do not."""
    if b"\x00" in body[:500]:
        kind = describe_foreign_content(b"<Ab " + body)
        assert kind is None


def test_C24_limit_is_named_and_only_the_length_is_read():
    reads = []

    def read(offset, length):
        reads.append((offset, length))
        return struct.pack("<Q", 126_000_000)[offset : offset + length].ljust(length, b"{")

    fault = describe_content_fault("m.safetensors", 7_000_000_000, read)
    assert "126000000" in fault
    assert "100000000" in fault
    assert sum(length for _, length in reads) < 1024


def test_C24_many_tensors_are_checked_in_bounded_memory():
    count = 100_000
    entries = ",".join(
        f'"model.layers.{index}.weight":'
        f'{{"dtype":"U8","shape":[1],"data_offsets":[{index},{index + 1}]}}'
        for index in range(count)
    )
    header = f"{{{entries}}}".encode()
    body = struct.pack("<Q", len(header)) + header

    def read(offset, length):
        return body[offset : offset + length]

    tracemalloc.start()
    fault = describe_safetensors_fault(len(body) + count, read)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fault is None
    assert peak < 3 * len(header)


def test_header_longer_than_the_window_with_text_across_its_edge(tmp_path):
    metadata = {f"k{index}": "\u4e00\U0001f600" * 500 for index in range(700)}
    body = make({"__metadata__": metadata, "w": tensor("U8", [16], 0, 16)})
    escaped = raw(
        json.dumps(
            {"__metadata__": metadata, "w": tensor("U8", [16], 0, 16)}, ensure_ascii=False
        ).encode()
    )
    for variant in (body, escaped):
        assert len(variant) > 2 << 20
        assert reference_opens(variant, tmp_path)
        assert fault_of(variant) is None
        assert fault_of(variant[:-1]) is not None


def test_first_bytes_needed_are_bounded_by_the_file():
    assert header_bytes_needed("m.safetensors", len(K01), K01) == len(K01)
    assert header_bytes_needed("m.bin", 10, bytes(10)) == 10
    assert header_bytes_needed("m.safetensors", 10**9, struct.pack("<Q", 10**6)) == 10**6 + 8
    assert header_bytes_needed("m.safetensors", 10**12, struct.pack("<Q", 10**9)) == 512
