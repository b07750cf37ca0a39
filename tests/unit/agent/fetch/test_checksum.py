"""A file's checksum while it arrives, beside published values and the standard library's."""

from __future__ import annotations

import base64
import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_agent.fetch.checksum import start_checksum
from modelcache_agent.fetch.job import FetchFile
from modelcache_api.checksums import Checksum, ChecksumAlgorithm
from modelcache_api.manifest import ContentFile, SourceFile

# The check values of the CRC catalogues: of these nine bytes.
NINE = b"123456789"
CHECKS = {"crc64nvme": "ae8b14860a799888", "crc32c": "e3069283", "crc32": "cbf43926"}
CHECKS["sha1"] = hashlib.sha1(NINE).hexdigest()


def started(stated, expected=None):
    source = SourceFile("m.bin", 9, '"e"', checksum=str(stated) if stated else None)
    return start_checksum(FetchFile(source, expected))


def stated_as(algorithm, value):
    return Checksum(ChecksumAlgorithm(algorithm), value)


@pytest.mark.parametrize("algorithm", CHECKS)
@pytest.mark.parametrize("cut", [0, 1, 8, 9])
def test_the_published_values_are_met_however_the_bytes_are_cut(algorithm, cut):
    running = started(stated_as(algorithm, bytes.fromhex(CHECKS[algorithm])))
    running.update(memoryview(NINE[:cut]))
    running.update(memoryview(bytearray(NINE[cut:])))
    assert running.describe_mismatch() is None


@pytest.mark.parametrize("algorithm", CHECKS)
def test_other_bytes_are_told_with_both_values_as_the_stores_tools_show_them(algorithm):
    stated = stated_as(algorithm, bytes.fromhex(CHECKS[algorithm]))
    running = started(stated)
    running.update(memoryview(b"123456780"))
    told = running.describe_mismatch()
    value = base64.b64encode(stated.value).decode()
    assert f"the source states {algorithm}:{value}" in told
    assert told.startswith(f"the bytes have the checksum {algorithm}:")


@given(st.lists(st.binary(max_size=300)))
def test_pieces_come_to_what_the_whole_does(pieces):
    whole = zlib.crc32(b"".join(pieces)).to_bytes(4, "big")
    running = started(stated_as("crc32", whole))
    for piece in pieces:
        running.update(memoryview(piece))
    assert running.describe_mismatch() is None


def test_nothing_is_computed_where_nothing_new_could_be_learned():
    known = ContentFile("m.bin", 9, hashlib.sha256(NINE).hexdigest())
    assert started(stated_as("crc32", bytes(4)), known) is None
    assert started(None) is None
    assert started("xxhash3:AAAAAAAAAAA=") is None, "of a newer operator"
