"""What a ModelVersion's status says of its source, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from builders import NOW, digest, make_cache, make_condition, make_version
from modelcache_api.names import Condition, Reason
from modelcache_api.v1alpha1.model_version import OnSourceGone
from modelcache_operator.decide.cache_node_spec import PlacedCopy, make_cache_node_spec
from modelcache_operator.decide.cache_status import CacheFacts, make_cache_status
from modelcache_operator.decide.copies import CopyTally
from modelcache_operator.decide.events import version_events
from modelcache_operator.decide.source_check import UNCHANGED, SourceFinding
from modelcache_operator.decide.version_status import (
    KnownContent,
    RefusedSource,
    ResolvedSource,
    SourceCheck,
    VersionFacts,
    check_in_status,
    make_version_status,
)
from modelcache_operator.decide.withdrawal import describe_withdrawal
from modelcache_operator.decide.world import ObjectKey, Uid

SOURCE = ResolvedSource(digest("a"), 2048, 3)
CONTENT = KnownContent(digest("c"), digest("d"))
GONE = SourceFinding(is_current=False, reason=Reason.SOURCE_GONE, message="2 files of 2 gone")
CHANGED = SourceFinding(is_current=False, reason=Reason.SOURCE_CHANGED, message="1 file changed")
AWAY = SourceFinding(is_current=None, reason=Reason.ENDPOINT_UNREACHABLE, message="it is away")
KEEP, DROP = OnSourceGone.KEEP, OnSourceGone.DROP


def make_status(finding, policy=KEEP, version=None, source=SOURCE):
    check = SourceCheck(finding, NOW) if finding else None
    seen = version or make_version(on_source_gone=policy)
    return make_version_status(VersionFacts(seen, source, CONTENT, 2, check=check), NOW)


def told(status, kind):
    found = next((item for item in status.conditions if item.type == kind), None)
    return (found.status, found.reason) if found else None


READY = ("True", Reason.RESOLVED)


@pytest.mark.parametrize(
    ("finding", "policy", "ready", "current", "is_held"),
    [
        pytest.param(None, KEEP, READY, None, True, id="not looked at"),
        pytest.param(UNCHANGED, KEEP, READY, ("True", "Resolved"), True, id="the same"),
        pytest.param(CHANGED, KEEP, READY, ("False", "SourceChanged"), True, id="changed"),
        pytest.param(CHANGED, DROP, READY, ("False", "SourceChanged"), True, id="changed: no Drop"),
        pytest.param(GONE, KEEP, READY, ("False", "SourceGone"), True, id="C21: gone, kept"),
        pytest.param(
            GONE,
            DROP,
            ("False", Reason.SOURCE_GONE),
            ("False", "SourceGone"),
            False,
            id="C21: gone, dropped",
        ),
        pytest.param(
            AWAY, DROP, READY, ("Unknown", "EndpointUnreachable"), True, id="C14: trouble is no end"
        ),
    ],
)
def test_what_is_said_and_what_is_held(finding, policy, ready, current, is_held):
    status = make_status(finding, policy)
    assert told(status, Condition.READY) == ready
    assert told(status, Condition.SOURCE_CURRENT) == current
    assert (status.node_label_key is not None) is is_held
    version = replace(make_version(on_source_gone=policy), status=status)
    assert (describe_withdrawal(version) is None) is is_held
    copy = PlacedCopy(ObjectKey("search", "c1"), version, may_be_evicted=False)
    assert bool(make_cache_node_spec(Uid("n"), [copy]).entries) is is_held


def test_the_policy_in_force_is_named():
    for policy, words in (
        (KEEP, "verified copies stay"),
        (DROP, "copies are taken from the nodes"),
    ):
        status = make_status(GONE, policy)
        message = next(c.message for c in status.conditions if c.type == Condition.SOURCE_CURRENT)
        assert words in message
        assert GONE.message in message


def test_a_cache_whose_version_is_dropped_says_why():
    version = replace(make_version(on_source_gone=DROP), status=make_status(GONE, DROP))
    status = make_cache_status(CacheFacts(make_cache(), version, CopyTally(2, ()), None), NOW)
    assert told(status, Condition.READY) == ("False", Reason.SOURCE_GONE)
    assert told(status, Condition.STALLED) == ("True", Reason.SOURCE_GONE)
    assert status.tracks[0].node_label_key is None
    assert "spec.onSourceGone is Drop" in status.conditions[0].message


@pytest.mark.parametrize("finding", [UNCHANGED, CHANGED, GONE, AWAY])
@pytest.mark.parametrize("policy", [KEEP, DROP])
def test_what_was_found_is_read_back_from_the_status(finding, policy):
    version = replace(make_version(on_source_gone=policy), status=make_status(finding, policy))
    assert check_in_status(version) == SourceCheck(finding, NOW)
    facts = VersionFacts(version, SOURCE, CONTENT, 2, check=check_in_status(version))
    assert make_version_status(facts, NOW + timedelta(days=1)) == version.status


def test_a_condition_that_a_newer_release_has_invented_is_not_read():
    odd = make_condition("FromTomorrow", "False", Condition.SOURCE_CURRENT)
    assert check_in_status(make_version(conditions=(odd,))) is None
    assert check_in_status(make_version()) is None


def test_nothing_is_said_of_the_source_of_a_version_that_is_not_resolved():
    refused = RefusedSource(Reason.AUTH_FAILED, "wrong key", needs_help=True)
    status = make_status(UNCHANGED, source=refused)
    assert told(status, Condition.SOURCE_CURRENT) is None
    assert status.last_check_time is None


@pytest.mark.parametrize(
    ("was", "became", "policy", "expected"),
    [
        pytest.param(None, UNCHANGED, KEEP, [], id="the same is no news"),
        pytest.param(UNCHANGED, UNCHANGED, KEEP, [], id="nor is it later"),
        pytest.param(UNCHANGED, CHANGED, KEEP, [("SourceChanged", True)], id="changed"),
        pytest.param(CHANGED, CHANGED, KEEP, [], id="changed is told once"),
        pytest.param(UNCHANGED, GONE, KEEP, [("SourceGone", True)], id="gone"),
        pytest.param(UNCHANGED, GONE, DROP, [("SourceGone", True)], id="dropped: one Event"),
        pytest.param(UNCHANGED, AWAY, KEEP, [("EndpointUnreachable", True)], id="trouble"),
        pytest.param(CHANGED, UNCHANGED, KEEP, [("Resolved", False)], id="back again"),
        pytest.param(GONE, UNCHANGED, DROP, [("Resolved", False)], id="back again, one Event"),
    ],
)
def test_an_event_follows_when(was, became, policy, expected):
    before = make_status(was, policy)
    version = replace(make_version(on_source_gone=policy), status=before)
    notes = version_events(version, make_status(became, policy, version).conditions)
    assert [(note.reason, note.is_warning) for note in notes] == expected
