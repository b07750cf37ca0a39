"""Manifests: one order, one digest, and damage never goes unseen."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_api.manifest import (
    ContentFile,
    SourceFile,
    describe_difference,
    digest_hex,
    make_content_manifest,
    make_source_manifest,
    pack_content,
    pack_source,
    unpack_content,
    unpack_source,
)

SHA = "ab" * 32
PATHS = st.text(st.characters(exclude_categories=("C",)), min_size=1, max_size=20)
SIZES = st.integers(0, 2**63)
TOKENS = st.none() | st.text(max_size=10)
SOURCE_FILES = st.lists(
    st.builds(SourceFile, PATHS, SIZES, TOKENS, TOKENS, TOKENS, st.none() | st.just(SHA))
    | st.builds(SourceFile, PATHS, SIZES, TOKENS, TOKENS, TOKENS, checksum=st.just("crc32:NhA=")),
    unique_by=lambda file: file.path,
)
REVISIONS = st.none() | st.text(max_size=40)
CONTENT_FILES = st.lists(
    st.builds(ContentFile, PATHS, SIZES, st.just(SHA), st.lists(st.just(SHA)).map(tuple)),
    unique_by=lambda file: file.path,
)


@given(SOURCE_FILES, REVISIONS, st.randoms())
def test_source_manifest_comes_back_and_knows_no_order(files, revision, random):
    manifest = make_source_manifest(files, revision)
    random.shuffle(files)
    shuffled = make_source_manifest(files, revision)
    assert shuffled == manifest
    assert shuffled.digest == manifest.digest
    assert pack_source(shuffled) == pack_source(manifest)
    assert unpack_source(pack_source(manifest)) == manifest


@given(CONTENT_FILES, st.randoms())
def test_content_manifest_comes_back_and_knows_no_order(files, random):
    manifest = make_content_manifest(files)
    random.shuffle(files)
    shuffled = make_content_manifest(files)
    assert shuffled == manifest
    assert shuffled.digest == manifest.digest
    assert pack_content(shuffled) == pack_content(manifest)
    assert unpack_content(pack_content(manifest)) == manifest


def test_content_digest_is_what_the_design_says():
    files = [ContentFile("b", 2, SHA), ContentFile("a/c", 1, SHA), ContentFile("ä", 3, SHA)]
    lines = f"{SHA} 1 a/c\n{SHA} 2 b\n{SHA} 3 ä\n"
    expected = "sha256:" + hashlib.sha256(lines.encode()).hexdigest()
    assert make_content_manifest(files).digest == expected


def test_order_is_that_of_the_bytes_not_of_the_characters():
    # U+FF5E sorts before U+10000 as a code point and as UTF-8, but after it as UTF-16.
    files = [SourceFile("\U00010000", 1), SourceFile("\uff5e", 1), SourceFile("B", 1)]
    assert [f.path for f in make_source_manifest(files).files] == ["B", "\uff5e", "\U00010000"]


CHANGES = [
    pytest.param(SourceFile("p", 2, "e"), id="size"),
    pytest.param(SourceFile("q", 1, "e"), id="path"),
    pytest.param(SourceFile("p", 1, "f"), id="etag"),
    pytest.param(SourceFile("p", 1, "e", "v"), id="version"),
    pytest.param(SourceFile("p", 1, None, "e"), id="version of the same text as the etag"),
    pytest.param(SourceFile("p", 1, 'e" x\n1 "e'), id="etag that looks like more"),
    pytest.param(SourceFile("p", 1, last_modified="e"), id="date of the same text as the etag"),
]


@pytest.mark.parametrize("changed", CHANGES)
def test_source_digest_changes_with_every_part_of_the_identity(changed):
    before = make_source_manifest([SourceFile("p", 1, "e")])
    assert make_source_manifest([changed]).digest != before.digest


def test_key_checksum_and_revision_are_no_part_of_the_identity():
    one, other = SourceFile("p", 1, "e"), SourceFile("p", 1, "e", key="x/p", sha256=SHA)
    assert make_source_manifest([one]).digest == make_source_manifest([other], "0a").digest


def test_manifests_without_checksums_and_revision_are_packed_as_ever():
    """Their stored bytes have a digest, by which those written by older operators are found."""
    packed = pack_source(make_source_manifest([SourceFile("p", 1, "e", key="k")]))
    assert gzip.decompress(packed) == b'[["p",1,"e",null,"k"]]'


@pytest.mark.parametrize("sha256", [None, SHA])
def test_a_date_is_kept_with_and_without_a_checksum(sha256):
    dated = make_source_manifest([SourceFile("p", 1, sha256=sha256, last_modified="d")])
    assert unpack_source(pack_source(dated)) == dated


PACKED = pack_content(make_content_manifest([ContentFile("a" * 50, 10, SHA, (SHA, SHA))]))


@given(st.integers(0, len(PACKED) - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_harmless(position, change):
    damaged = bytearray(PACKED)
    damaged[position] ^= change
    try:
        found = unpack_content(bytes(damaged))
    except ValueError:
        return
    assert found == unpack_content(PACKED)


@given(st.integers(0, len(PACKED) - 1))
def test_a_cut_manifest_is_refused(length):
    with pytest.raises(ValueError, match="damaged"):
        unpack_content(PACKED[:length])


@given(st.binary())
def test_anything_else_is_refused(data):
    with pytest.raises(ValueError, match="stored manifest"):
        unpack_source(data)


SHAPES = [
    {},
    None,
    1,
    [1],
    [[]],
    [["p"]],
    [["p", 1, None, None]],
    [["p", "1", None, None, None]],
    [[None, 1, None, None, None]],
    [["p", 1, 5, None, None]],
    [["p", 1, None, None, None, None]],
    [["p", 1, None, None, None, SHA, None]],
    {"revision": 5, "files": []},
    {"revision": "0a", "files": {}},
    {"files": [["p"]]},
]


@pytest.mark.parametrize("value", SHAPES, ids=json.dumps)
def test_another_shape_is_refused(value):
    with pytest.raises(ValueError, match="another shape"):
        unpack_source(gzip.compress(json.dumps(value).encode()))


def test_a_manifest_nested_without_end_is_refused():
    with pytest.raises(ValueError, match="damaged"):
        unpack_source(gzip.compress(b"[" * 100_000))


SOURCE = make_source_manifest([SourceFile("a", 1), SourceFile("b", 2)])
DIFFERENCES = [
    pytest.param([("a", 1), ("b", 2)], None, id="the same"),
    pytest.param([("a", 1)], "lacks 1 files of the source, first 'b'", id="one too few"),
    pytest.param([("a", 1), ("b", 2), ("c", 1)], "has 1 files that", id="one too many"),
    pytest.param([("a", 1), ("b", 3)], "'b' has 3 bytes, the source says 2", id="another size"),
    pytest.param([("a", 1), ("b", 2), ("a", 1)], "lists a path twice", id="twice"),
]


@pytest.mark.parametrize(("files", "expected"), DIFFERENCES)
def test_difference(files, expected):
    content = make_content_manifest(ContentFile(path, size, SHA) for path, size in files)
    told = describe_difference(SOURCE, content)
    assert told is None if expected is None else expected in told


def test_a_checksum_that_the_source_states_is_kept_to():
    stated = make_source_manifest([SourceFile("a", 1, sha256=SHA), SourceFile("b", 2)])
    same = make_content_manifest([ContentFile("a", 1, SHA), ContentFile("b", 2, "cd" * 32)])
    other = make_content_manifest([ContentFile("a", 1, "cd" * 32), ContentFile("b", 2, SHA)])
    assert describe_difference(stated, same) is None
    assert f"'a' has sha256 {'cd' * 32}, the source says {SHA}" in describe_difference(
        stated, other
    )


@pytest.mark.parametrize(
    "text", ["", "sha256:", "md5:" + SHA, "sha256:" + "A" * 64, "../" + SHA[3:]]
)
def test_what_is_no_digest_never_names_a_folder(text):
    with pytest.raises(ValueError, match="not a sha256 digest"):
        digest_hex(text)


def test_digest_hex():
    assert digest_hex("sha256:" + SHA) == SHA
