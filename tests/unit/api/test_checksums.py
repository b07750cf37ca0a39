"""Checksums of whole objects, as they travel from a store's word to an agent."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_api.checksums import Checksum, ChecksumAlgorithm, decode_checksum, parse_checksum

SIZES = {"crc64nvme": 8, "crc32c": 4, "crc32": 4, "sha1": 20}


@given(st.sampled_from(list(ChecksumAlgorithm)), st.data())
def test_a_checksum_comes_back_from_its_text(algorithm, data):
    size = SIZES[algorithm]
    value = data.draw(st.binary(min_size=size, max_size=size))
    checksum = Checksum(algorithm, value)
    assert parse_checksum(str(checksum)) == checksum
    assert decode_checksum(algorithm, base64.b64encode(value).decode()) == checksum


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("xxhash3:AAAAAAAAAAA=", id="an algorithm of newer versions"),
        pytest.param("crc32c:AAAAAAAAAAA=", id="another length"),
        pytest.param("crc32:0+9Hrw==-2", id="of two parts"),
        pytest.param("crc32:%%%%", id="no base64"),
        pytest.param("crc32:NhCmhü==", id="not ASCII"),
        pytest.param("crc32", id="no value"),
        pytest.param("", id="nothing"),
    ],
)
def test_what_is_no_checksum_of_ours_is_none(text):
    assert parse_checksum(text) is None
