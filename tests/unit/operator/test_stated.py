"""What counts as a store's word on an object's bytes."""

from __future__ import annotations

import base64
import hashlib

import pytest

from modelcache_api.manifest import SourceFile
from modelcache_api.v1alpha1.source import Checksums
from modelcache_operator.sources.stated import (
    MAX_ASKED,
    choose_asked,
    is_same_object,
    lists_checksum,
    with_stated,
)

ONE, PARTS = '"5d41402abc4b2a76b9719d911017c592"', '"fdd3f8f29045d7454477dd634c8cd8cb-2"'
FILE = SourceFile("a", 5, ONE)
SHA256 = hashlib.sha256(b"hello")
TOLD = base64.b64encode(SHA256.digest()).decode()


@pytest.mark.parametrize(
    ("row", "listed"),
    [
        pytest.param({"ChecksumAlgorithm": ["CRC64NVME"], "ChecksumType": "FULL_OBJECT"}, True),
        pytest.param({"ChecksumAlgorithm": ["SHA256"], "ChecksumType": "COMPOSITE"}, False),
        pytest.param({"ChecksumAlgorithm": ["SHA256"], "ETag": ONE}, True, id="kind not told"),
        pytest.param({"ChecksumAlgorithm": ["SHA256"], "ETag": PARTS}, False, id="in parts"),
        pytest.param({"ChecksumAlgorithm": ["XXHASH3"], "ChecksumType": "FULL_OBJECT"}, False),
        pytest.param({"ChecksumAlgorithm": [], "ChecksumType": "FULL_OBJECT"}, False, id="none"),
        pytest.param({"ETag": ONE}, False, id="C08 a store that knows nothing of checksums"),
    ],
)
def test_a_listing_announces_a_checksum_of_the_whole_object(row, listed):
    assert lists_checksum(row) is listed


@pytest.mark.parametrize(
    ("answer", "sha256", "checksum"),
    [
        pytest.param({"ChecksumSHA256": TOLD, "ETag": ONE}, SHA256.hexdigest(), None, id="sha256"),
        pytest.param({"ChecksumCRC32": "NhCmhg==", "ETag": ONE}, None, "crc32:NhCmhg==", id="crc"),
        pytest.param(
            {"ChecksumCRC32": "NhCmhg==", "ETag": PARTS, "ChecksumType": "FULL_OBJECT"},
            None,
            "crc32:NhCmhg==",
            id="parts that were combined",
        ),
        pytest.param(
            {"ChecksumCRC32": "NhCmhg==", "ChecksumSHA256": TOLD, "ETag": ONE},
            SHA256.hexdigest(),
            None,
            id="sha256 is the best of two",
        ),
        pytest.param({"ChecksumCRC32": "0+9Hrw==-2", "ETag": PARTS}, None, None, id="of parts"),
        pytest.param({"ChecksumCRC32": "NhCmhg==", "ETag": PARTS}, None, None, id="maybe of parts"),
        pytest.param(
            {"ChecksumSHA256": TOLD, "ETag": ONE, "ChecksumType": "COMPOSITE"},
            None,
            None,
            id="composite",
        ),
        pytest.param({"ChecksumSHA256": "nonsense", "ETag": ONE}, None, None, id="nonsense"),
        pytest.param({"ETag": ONE}, None, None, id="nothing"),
    ],
)
def test_only_a_checksum_of_the_whole_object_is_taken(answer, sha256, checksum):
    file = with_stated(FILE, answer)
    assert (file.sha256, file.checksum) == (sha256, checksum)
    assert file.identity == FILE.identity


def test_the_largest_files_are_asked_for_first_and_not_for_ever():
    files = [SourceFile(f"f{size}", size, ONE) for size in range(MAX_ASKED + 2)]
    listed = frozenset(file.path for file in files if file.path != "f7")
    asked = choose_asked(files, frozenset(listed), Checksums.WHEN_LISTED)
    assert [file.size_bytes for file in asked][:2] == [MAX_ASKED + 1, MAX_ASKED]
    assert len(asked) == MAX_ASKED
    few = choose_asked(files[:9], frozenset(listed), Checksums.WHEN_LISTED)
    assert {file.path for file in few} == {f"f{size}" for size in (1, 2, 3, 4, 5, 6, 8)}
    assert len(choose_asked(files[:9], frozenset(), Checksums.ASK)) == 8, "all but the empty one"
    assert choose_asked(files, listed, Checksums.IGNORE) == ()


def test_an_answer_about_other_bytes_is_noticed():
    assert is_same_object(FILE, {"ETag": ONE})
    assert is_same_object(FILE, {"ETag": f"W/{ONE}"})
    assert is_same_object(FILE, {})
    assert not is_same_object(FILE, {"ETag": PARTS})
