from __future__ import annotations

from dataclasses import replace

import pytest

from builders import digest
from modelcache_api.cut import Cut
from modelcache_api.manifest import SourceFile, make_source_manifest
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.model_version import ModelVersionSpec
from modelcache_api.v1alpha1.source import Source
from modelcache_operator.decide.source_check import (
    UNCHANGED,
    SourceFinding,
    Standing,
    conclude,
    count_missed,
    is_pinned,
    is_same_transport,
    judge_listing,
    judge_refusal,
    period,
    seconds_owed_at_first,
    seconds_until_first,
    seconds_until_next,
    spread_of,
)

DAY = 86_400.0
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def file(path, etag="e1", size=10, version=None):
    return SourceFile(path, size, None if etag is None else f'"{etag}"', version)


def dated(path, date):
    return SourceFile(path, 10, last_modified=date)


def listing(*files):
    return make_source_manifest(files)


KEPT = listing(file("a"), file("b"))
VERSIONED = listing(file("a", version="1"), file("b", version="2"))
CHANGED, GONE = Reason.SOURCE_CHANGED, Reason.SOURCE_GONE


@pytest.mark.parametrize(
    ("kept", "found", "reason", "told"),
    [
        pytest.param(KEPT, KEPT, Reason.RESOLVED, "", id="the same"),
        pytest.param(
            listing(dated("a", "d1"), file("b")),
            listing(dated("a", "d2"), file("b")),
            CHANGED,
            "1 file ('a') changed",
            id="C06: another date",
        ),
        pytest.param(
            listing(dated("a", "d1"), dated("b", "d1")),
            listing(dated("a", "d1")),
            GONE,
            "1 file ('b')",
            id="a dated file is gone, the other is the same",
        ),
        pytest.param(
            KEPT,
            listing(file("a", "e2"), file("b")),
            CHANGED,
            "1 file ('a') changed",
            id="C06: overwritten with as many bytes",
        ),
        pytest.param(
            KEPT,
            listing(file("a", size=11), file("b")),
            CHANGED,
            "1 file ('a') changed",
            id="another size under the same ETag",
        ),
        pytest.param(
            VERSIONED,
            listing(file("a", version="3"), file("b", version="2")),
            CHANGED,
            "1 file ('a') changed",
            id="equal bytes under a new version id",
        ),
        pytest.param(
            KEPT,
            listing(*KEPT.files, file("c")),
            CHANGED,
            "1 file ('c') new",
            id="a file more",
        ),
        pytest.param(
            KEPT,
            listing(file("a", "e2"), file("c")),
            CHANGED,
            "1 file ('a') changed, 1 file ('b') gone, 1 file ('c') new",
            id="another model in its place is no model gone",
        ),
        pytest.param(
            KEPT, listing(file("b")), GONE, "1 file ('a') of 2 gone", id="C21: a file is gone"
        ),
        pytest.param(
            make_source_manifest(VERSIONED.files, COMMIT),
            make_source_manifest(VERSIONED.files[:1], "f" * 40),
            CHANGED,
            "1 file ('b') gone",
            id="what a branch has lost is still at its commit",
        ),
        pytest.param(
            make_source_manifest(VERSIONED.files, COMMIT),
            make_source_manifest(VERSIONED.files, "f" * 40),
            Reason.RESOLVED,
            "",
            id="a commit that changes none of the files",
        ),
        pytest.param(
            None, listing(file("b")), CHANGED, "other files", id="the first listing was lost"
        ),
        pytest.param(
            VERSIONED, KEPT, Reason.RESOLVED, "", id="version ids may not be seen any more"
        ),
        pytest.param(
            KEPT,
            listing(file("a", version="null"), file("b", version="null")),
            Reason.RESOLVED,
            "",
            id="the bucket has begun to keep versions",
        ),
    ],
)
def test_a_listing_is_judged_by_identity(kept, found, reason, told):
    resolved = kept.digest if kept else digest("a")
    finding = judge_listing("m1", resolved, kept, found)
    assert (finding.reason, finding.is_current) == (reason, reason is Reason.RESOLVED)
    assert told in finding.message
    if reason is CHANGED:
        assert "kubectl modelcache new-version m1 --as NAME" in finding.message


def test_long_paths_do_not_crowd_out_the_cure():
    finding = judge_listing("m1", KEPT.digest, KEPT, listing(*KEPT.files, file("x" * 1000)))
    assert len(finding.message) < 400


def trouble(reason=Reason.ENDPOINT_UNREACHABLE, message="it is away"):
    return judge_refusal("s3://b/m", reason, message)


GONE_LOOK = judge_refusal("s3://b/m", Reason.SOURCE_NOT_FOUND, "there is no bucket 'b'")


@pytest.mark.parametrize(
    ("uri", "reason", "is_current", "told"),
    [
        ("s3://b/m", Reason.SOURCE_NOT_FOUND, False, Reason.SOURCE_GONE),
        ("s3://b/m", Reason.AUTH_FAILED, None, Reason.AUTH_FAILED),
        ("hf://o/n@x", Reason.REVISION_NOT_FOUND, False, CHANGED),
        # Or the token was revoked: the hub says the same.
        ("hf://o/n", Reason.SOURCE_NOT_FOUND, None, Reason.SOURCE_NOT_FOUND),
        ("hf://o/n", Reason.SOURCE_GATED, None, Reason.SOURCE_GATED),
        ("hf://o/n", Reason.SOURCE_GONE, None, Reason.SOURCE_ERROR),
        pytest.param(
            "https://h/m/", Reason.SOURCE_NOT_FOUND, False, Reason.SOURCE_GONE, id="C21 a folder"
        ),
        ("https://h/m/", Reason.NOT_A_MODEL, None, Reason.NOT_A_MODEL),
        # A date of this very second: the next look tells.
        ("https://h/m/", CHANGED, None, Reason.SOURCE_ERROR),
    ],
)
def test_what_a_refusal_says_of_the_source(uri, reason, is_current, told):
    finding = judge_refusal(uri, reason, "told")
    assert (finding.is_current, finding.reason) == (is_current, told)


CHANGED_LOOK = SourceFinding(is_current=False, reason=CHANGED, message="1 file ('a') changed")
CURRENT = Standing(UNCHANGED)
IS_GONE = Standing(GONE_LOOK, doubts=2)
IS_CHANGED = Standing(CHANGED_LOOK)


@pytest.mark.parametrize(
    ("before", "look", "after"),
    [
        pytest.param(CURRENT, UNCHANGED, CURRENT, id="still the same"),
        pytest.param(CURRENT, CHANGED_LOOK, IS_CHANGED, id="changed"),
        pytest.param(IS_CHANGED, UNCHANGED, CURRENT, id="back to what it was"),
        pytest.param(CURRENT, GONE_LOOK, Standing(UNCHANGED, doubts=1), id="one answer: gone"),
        pytest.param(Standing(UNCHANGED, doubts=1), GONE_LOOK, IS_GONE, id="two answers: gone"),
        pytest.param(Standing(UNCHANGED, doubts=1), UNCHANGED, CURRENT, id="it was a slip"),
        pytest.param(IS_GONE, GONE_LOOK, IS_GONE, id="still gone"),
        pytest.param(Standing(GONE_LOOK), GONE_LOOK, IS_GONE, id="gone, as another leader found"),
        pytest.param(IS_GONE, UNCHANGED, CURRENT, id="uploaded again"),
        pytest.param(
            CURRENT, trouble(), Standing(trouble(), 1), id="C14: a store that is away is not gone"
        ),
        pytest.param(
            Standing(trouble(), 1),
            trouble(message="other words"),
            Standing(trouble(), 2),
            id="the same trouble in other words is no news",
        ),
        pytest.param(
            Standing(trouble(), 1),
            trouble(Reason.AUTH_FAILED),
            Standing(trouble(Reason.AUTH_FAILED), 2),
            id="another trouble is",
        ),
        pytest.param(IS_GONE, trouble(), Standing(GONE_LOOK, 1, 2), id="gone, and now unreachable"),
        pytest.param(IS_CHANGED, trouble(), Standing(CHANGED_LOOK, 1), id="changed, now away"),
        pytest.param(Standing(trouble(), 3), UNCHANGED, CURRENT, id="it answers again"),
    ],
)
def test_looks_add_up(before, look, after):
    assert conclude(before, look) == after


@pytest.mark.parametrize(
    ("uri", "pin", "expected"),
    [
        ("s3://b/m", None, False),
        ("s3://b/m", digest("a"), True),
        (f"hf://org/name@{COMMIT}", None, True),
        ("hf://org/name@main", None, False),
        (f"s3://b/m@{COMMIT}", None, False),
    ],
)
def test_pinned_content_needs_no_second_look(uri, pin, expected):
    spec = ModelVersionSpec(model="m", source=Source(uri=uri), digest=pin)
    assert is_pinned(spec) is expected


def test_the_interval_is_no_transport():
    source = Source(uri="s3://b/m")
    assert is_same_transport(source, Source(uri="s3://b/m", recheck_interval="1h"))
    assert not is_same_transport(source, Source(uri="s3://b/m", endpoint="http://elsewhere"))


@pytest.mark.parametrize(
    ("age", "is_urgent", "expected"),
    [
        pytest.param(DAY / 2, False, DAY * 0.55, id="the rest of the period"),
        pytest.param(0.0, False, DAY * 1.05, id="a moment ago"),
        pytest.param(-2 * DAY, False, DAY * 1.05, id="C62: in the future counts as now"),
        pytest.param(2 * DAY, False, DAY * 0.05, id="C62: long overdue, and spread out"),
        pytest.param(None, False, DAY * 0.05, id="never"),
        pytest.param(DAY / 2, True, 30.0, id="trouble that should be over soon"),
    ],
)
def test_the_first_look_of_a_process(age, is_urgent, expected):
    assert seconds_until_first(DAY, age, 0.5, is_urgent=is_urgent) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("interval", "age", "expected"),
    [
        pytest.param(DAY, 3 * DAY, 2 * DAY, id="since the last one and a period"),
        pytest.param(DAY, 0.5 * DAY, -0.5 * DAY, id="not yet"),
        pytest.param(DAY, -DAY, -DAY, id="a time in the future is now"),
        pytest.param(60.0, 2 * 3600.0, 3540.0, id="not since what may have gone unwritten"),
        pytest.param(3600.0, 7200.0, 3600.0, id="each look of this period was written"),
    ],
)
def test_since_when_a_process_that_begins_finds_a_look_owed(interval, age, expected):
    assert seconds_owed_at_first(interval, age, 0.0, 3600.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("late", "expected"),
    [(-5.0, 0), (0.0, 0), (1.04 * DAY, 0), (1.06 * DAY, 1), (3.2 * DAY, 3)],
)
def test_looks_that_one_late_look_makes_up_for(late, expected):
    assert count_missed(DAY, late, 0.5) == expected


@pytest.mark.parametrize(
    ("standing", "retry_after", "expected"),
    [
        pytest.param(CURRENT, None, DAY * 1.05, id="once a period"),
        pytest.param(IS_CHANGED, None, DAY * 1.05, id="also when changed"),
        pytest.param(IS_GONE, None, DAY * 1.05, id="also when gone"),
        pytest.param(Standing(UNCHANGED, doubts=1), None, 30.0, id="gone is asked for twice"),
        pytest.param(Standing(trouble(), 1), 5.0, 15.0, id="trouble: soon"),
        pytest.param(Standing(trouble(), 3), 5.0, 60.0, id="trouble: ever more slowly"),
        pytest.param(Standing(trouble(), 30), 5.0, 900.0, id="trouble: a quarter of an hour"),
        pytest.param(Standing(trouble(), 1), None, 60.0, id="trouble that needs help"),
        pytest.param(Standing(trouble(), 1), 3600.0, 3600.0, id="the store's own wish"),
    ],
)
def test_the_next_look(standing, retry_after, expected):
    assert seconds_until_next(DAY, standing, 0.5, retry_after, 1.0) == pytest.approx(expected)


def test_a_thousand_versions_resolved_at_once_are_not_listed_at_once():
    due = sorted(period(DAY, spread_of(f"uid-{number}")) for number in range(1000))
    assert due[0] >= DAY
    # Over 2.4 h that is one each 9 s: any minute sees but a few.
    busiest = max(sum(start <= at < start + 60 for at in due) for start in due)
    assert busiest < 25


def test_the_spread_of_a_version_is_the_same_in_every_process():
    assert spread_of("uid-1") == spread_of("uid-1") != spread_of("uid-2")
    assert 0 <= spread_of("uid-1") < 1


PART = replace(file("a.safetensors"), size_bytes=4, cut=Cut(10, b"ab", ((3, 5),)))
KEPT = make_source_manifest([PART, file("config.json")], None, [file("b.safetensors")])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        pytest.param(None, None, id="nothing"),
        pytest.param(file("a.safetensors", "e2"), "'a.safetensors'", id="a file that is cut"),
        pytest.param(file("b.safetensors", "e2"), "'b.safetensors'", id="a file left out"),
        pytest.param(file("config.json", "e2"), "'config.json'", id="a file taken whole"),
    ],
)
def test_of_a_part_all_listed_files_are_compared_as_they_are_in_the_source(changed, told):
    names = ("a.safetensors", "b.safetensors", "config.json")
    found = [file(name) for name in names if changed is None or name != changed.path]
    now = make_source_manifest([*found, *([changed] if changed else [])])
    finding = judge_listing("m1", KEPT.digest, KEPT.listed, now)
    if told is None:
        assert finding == UNCHANGED
    else:
        assert finding.reason is Reason.SOURCE_CHANGED
        assert told in finding.message
