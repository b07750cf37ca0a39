from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from builders import NOW, digest, make_version
from modelcache_api.labels import make_node_label_key
from modelcache_api.manifest import SourceFile, make_source_manifest
from modelcache_api.names import Condition, Reason
from modelcache_operator.decide.version_status import (
    KnownContent,
    RefusedSource,
    ResolvedSource,
    VersionFacts,
    content_in_status,
    make_version_status,
    source_in_status,
)

SOURCE = ResolvedSource(digest("a"), 2048, 3)
CONTENT = KnownContent(digest("c"), digest("d"))


def test_the_commit_stays_in_the_status():
    resolved = ResolvedSource(digest("a"), 2048, 3, "0a" * 20)
    status = make_version_status(VersionFacts(make_version(), resolved, None, 0), NOW)
    assert status.source_revision == "0a" * 20
    assert source_in_status(replace(make_version(), status=status)) == resolved


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        pytest.param(("v1", "v2"), "VersionId", id="a bucket that keeps versions"),
        pytest.param((None, None), "ETag", id="a bucket that keeps none"),
        pytest.param(("v1", None), "Mixed", id="a suspended bucket"),
    ],
)
def test_what_tells_a_change_of_the_source_is_told(ids, told):
    files = [SourceFile(f"f{n}", 9, '"e"', version) for n, version in enumerate(ids)]
    resolved = ResolvedSource.of(make_source_manifest(files))
    status = make_version_status(VersionFacts(make_version(), resolved, None, 0), NOW)
    assert status.source_identity == told
    assert source_in_status(replace(make_version(), status=status)) == resolved


def conditions(status):
    return {item.type: item.status for item in status.conditions}


@pytest.mark.parametrize(
    ("version", "source", "content", "expected"),
    [
        pytest.param(
            make_version(), None, None, ("False", "True", "False", Reason.RESOLVING), id="new"
        ),
        pytest.param(
            make_version(),
            RefusedSource(Reason.SOURCE_NOT_FOUND, "no such bucket", needs_help=True),
            None,
            ("False", "False", "True", Reason.SOURCE_NOT_FOUND),
            id="a refusal that needs help",
        ),
        pytest.param(
            make_version(),
            RefusedSource(Reason.THROTTLED, "slow down", needs_help=False),
            None,
            ("False", "True", "False", Reason.THROTTLED),
            id="a refusal that ends by itself",
        ),
        pytest.param(
            make_version(), SOURCE, None, ("True", "False", "False", Reason.RESOLVED), id="resolved"
        ),
        pytest.param(
            make_version(spec_digest=digest("c")),
            SOURCE,
            CONTENT,
            ("True", "False", "False", Reason.RESOLVED),
            id="pinned, and the bytes are those",
        ),
        pytest.param(
            make_version(spec_digest=digest("e")),
            SOURCE,
            CONTENT,
            ("False", "False", "True", Reason.DIGEST_MISMATCH),
            id="pinned to other bytes than were verified",
        ),
    ],
)
def test_the_conditions_of_a_version(version, source, content, expected):
    status = make_version_status(VersionFacts(version, source, content, 0), NOW)
    found = conditions(status)
    ready = next(item for item in status.conditions if item.type == Condition.READY)
    assert (
        found[Condition.READY],
        found[Condition.RECONCILING],
        found[Condition.STALLED],
        ready.reason,
    ) == expected
    assert all(item.observed_generation == version.generation for item in status.conditions)


def test_what_is_known_is_in_the_status():
    status = make_version_status(VersionFacts(make_version(), SOURCE, CONTENT, 4), NOW)
    assert (status.source_digest, status.size_bytes, status.size, status.files) == (
        digest("a"),
        2048,
        "2Ki",
        3,
    )
    assert (status.content_digest, status.content_manifest_digest) == (digest("c"), digest("d"))
    assert status.node_label_key == make_node_label_key("search", "m1", digest("c"))
    assert status.nodes.disk == 4


def test_bytes_that_contradict_the_pin_are_named_and_labelled_nowhere():
    version = make_version(spec_digest=digest("e"))
    status = make_version_status(VersionFacts(version, SOURCE, CONTENT, 1), NOW)
    assert status.content_digest == digest("c")
    assert status.node_label_key is None
    assert "create a new ModelVersion" in status.conditions[0].message


def test_nothing_is_claimed_of_a_version_that_is_not_resolved():
    refused = RefusedSource(Reason.AUTH_FAILED, "wrong key", needs_help=True)
    status = make_version_status(VersionFacts(make_version(), refused, CONTENT, 4), NOW)
    claims = (status.source_digest, status.content_digest, status.size, status.nodes)
    assert claims == (None, None, None, None)
    assert status.node_label_key is None


def test_source_and_content_are_read_back_from_the_status():
    status = make_version_status(VersionFacts(make_version(), SOURCE, CONTENT, 0), NOW)
    version = make_version(resolved=False, **status.model_dump())
    assert source_in_status(version) == SOURCE
    assert content_in_status(version) == CONTENT
    empty = make_version(resolved=False)
    assert source_in_status(empty) is None
    assert content_in_status(empty) is None


def test_equal_facts_give_an_equal_status_whatever_the_time():
    facts = VersionFacts(make_version(), SOURCE, None, 0)
    first = make_version_status(facts, NOW)
    again = VersionFacts(make_version(conditions=first.conditions), SOURCE, None, 0)
    assert make_version_status(again, NOW + timedelta(days=1)) == first
