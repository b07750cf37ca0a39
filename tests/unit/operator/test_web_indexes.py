from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.web.indexes import parse_checksums, parse_shards

SHA, OTHER = "0a" * 32, "0b" * 32


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(f"{SHA}  a\n{OTHER}  b/c\n", {"a": SHA, "b/c": OTHER}, id="text"),
        pytest.param(f"{SHA} *a\n", {"a": SHA}, id="binary"),
        pytest.param(f"SHA256 (a (1)) = {SHA}\nSHA256(b)= {SHA}\n", None, id="openssl's, half"),
        pytest.param(f"SHA256 (a (1)) = {SHA}\n", {"a (1)": SHA}, id="BSD"),
        pytest.param(f"{SHA.upper()}  a\r\n\r\n", {"a": SHA}, id="of another system"),
        pytest.param(f"\ufeff{SHA}  ./a\n", {"a": SHA}, id="a mark in front, find's paths"),
        pytest.param(f"{SHA}  a  b \n", {"a  b ": SHA}, id="spaces in a name"),
        pytest.param(f"{SHA}  a\n{SHA}  ./a\n", {"a": SHA}, id="twice, and equal"),
        pytest.param(f"{SHA}  a\n{OTHER}  sums\n", {"a": SHA}, id="its own line"),
        pytest.param(f"\\{SHA}  a\\nb\n", {"a\\nb": SHA}, id="an escaped name keeps its backslash"),
        pytest.param(f"{SHA}  a\n{OTHER}  a\n", None, id="twice, and not equal"),
        pytest.param(f"{SHA} a\n", None, id="one space"),
        pytest.param(f"{SHA[:-1]}  a\n", None, id="too short"),
        pytest.param(f"{OTHER}  sums\n", None, id="nothing but itself"),
    ],
)
def test_lines_of_sha256sum(text, found):
    if found is None:
        with pytest.raises(SourceError, match="SourceInvalid: 'sums'"):
            parse_checksums(text.encode(), "sums")
    else:
        assert parse_checksums(text.encode(), "sums") == found


def test_more_files_than_are_looked_at():
    lines = b"".join(b"%s  %d\n" % (SHA.encode(), n) for n in range(100_001))
    with pytest.raises(SourceError, match="TooManyFiles"):
        parse_checksums(lines, "sums")


@given(st.binary(max_size=200))
def test_rubbish_is_an_error_and_nothing_else(body):
    for parse in (parse_checksums, parse_shards):
        try:
            assert parse(body, "x")
        except SourceError as error:
            assert error.reason == "SourceInvalid"  # noqa: PT017 - or it parses


@given(st.dictionaries(st.from_regex(r"[a-z]{1,9}(/[a-z]{1,9})?", fullmatch=True), st.binary()))
def test_what_sha256sum_writes_is_read(files):
    sums = {path: hashlib.sha256(body).hexdigest() for path, body in files.items()}
    text = "".join(f"{sha256}  {path}\n" for path, sha256 in sums.items())
    if sums:
        assert parse_checksums(text.encode(), "SHA256SUMS") == sums


def test_shards_lie_beside_their_index():
    body = b'{"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}}'
    assert parse_shards(body, "model.safetensors.index.json") == ("1.safetensors", "2.safetensors")
    assert parse_shards(body, "a/b/x.safetensors.index.json")[0] == "a/b/1.safetensors"
