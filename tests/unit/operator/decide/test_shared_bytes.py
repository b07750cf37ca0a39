from __future__ import annotations

import dataclasses

import pytest

from fakes.source_world import make_version
from modelcache_api.cut import Cut
from modelcache_api.manifest import ContentFile, SourceFile
from modelcache_operator.decide.shared_bytes import may_share, share_file
from modelcache_operator.decide.world import ObjectKey

URI = "s3://models/m"
PART = make_version(URI, load=["a.*"], uid="part")
WHOLE = make_version(URI, uid="whole")
ELSEWHERE = dataclasses.replace(WHOLE, key=ObjectKey("other", "v1"))
CUT = Cut(100, b"header", ((10, 30), (50, 60)))
TAKEN = SourceFile("m.safetensors", CUT.size_bytes, '"e"', cut=CUT)
FILE = SourceFile("m.safetensors", 100, '"e"')
CONTENT = ContentFile("m.safetensors", CUT.size_bytes, "a" * 64)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(PART, WHOLE, True, id="a part and the whole"),
        pytest.param(WHOLE, PART, True, id="the whole and a part"),
        pytest.param(PART, PART, False, id="itself"),
        pytest.param(WHOLE, make_version(URI, uid="w2"), False, id="two that take all"),
        pytest.param(PART, ELSEWHERE, False, id="another namespace"),
        pytest.param(PART, make_version("s3://models/n", uid="w2"), False, id="another prefix"),
        pytest.param(
            PART, make_version(URI, endpoint="http://x", uid="w2"), False, id="another store"
        ),
    ],
)
def test_only_versions_of_one_source_and_namespace_share(one, other, expected):
    assert may_share(one, other) is expected


def test_ranges_of_a_part_and_of_the_whole():
    shared = share_file(FILE, TAKEN, CONTENT)
    assert (shared.skip, shared.ranges, shared.size_bytes) == (6, CUT.ranges, CUT.size_bytes)
    whole = share_file(TAKEN, FILE, ContentFile("m.safetensors", 100, "b" * 64))
    assert (whole.skip, whole.ranges) == (0, ((0, 100),))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(dataclasses.replace(TAKEN, etag='"f"'), id="another ETag"),
        pytest.param(dataclasses.replace(TAKEN, version_id="v2"), id="another version"),
        pytest.param(dataclasses.replace(TAKEN, path="n.safetensors"), id="another path"),
        pytest.param(
            dataclasses.replace(TAKEN, cut=dataclasses.replace(CUT, whole_bytes=99)),
            id="another size",
        ),
        pytest.param(SourceFile("m.safetensors", 6, '"e"', cut=Cut(100, b"header")), id="no range"),
    ],
)
def test_what_may_be_other_bytes_is_not_shared(other):
    assert share_file(FILE, other, CONTENT) is None


def test_a_date_does_not_vouch_for_bytes():
    date = {"etag": None, "last_modified": "Mon, 30 Nov 2026 00:00:00 GMT"}
    file, taken = dataclasses.replace(FILE, **date), dataclasses.replace(TAKEN, **date)
    assert file.identity == taken.whole.identity
    assert share_file(file, taken, CONTENT) is None
