from __future__ import annotations

from datetime import timedelta

import pytest

from builders import (
    GIB,
    NOW,
    digest,
    make_book,
    make_books,
    make_cache,
    make_condition,
    make_entry,
    make_version,
)
from modelcache_api.names import Condition, EntryState, Reason, Tier
from modelcache_operator.decide.cache_status import CacheFacts, make_cache_status
from modelcache_operator.decide.copies import tally_copies
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.shortage import Shortage
from modelcache_operator.decide.world import Uid

CACHED, FAILED = EntryState.CACHED, EntryState.FAILED
DOWNLOADING, VERIFYING = EntryState.DOWNLOADING, EntryState.VERIFYING
PENDING, EVICTED = EntryState.PENDING, EntryState.EVICTED


def pressed_facts(*others, min_ready=1):
    """The last copy was given up under disk pressure."""
    entry = make_entry(
        state=EVICTED, reason=Reason.DISK_PRESSURE, message="given up: it comes back when"
    )
    books = make_books(
        *(
            make_book(f"n{number}", entries=[make_entry(state=state)])
            for number, state in enumerate(others)
        ),
        make_book("n9", entries=[entry]),
    )
    cache = make_cache(copies=len(books), min_ready=min_ready)
    tally = tally_copies(Uid("v1"), list(books), len(books), books)
    return CacheFacts(cache, make_version(), tally, None)


def facts(states, *, copies=None, min_ready=1, version="resolved", shortage=None, **cache):
    """`states` are the states of the copies on n0, n1, ...; None where nothing is reported."""
    wanted = len(states) if copies is None else copies
    books = make_books(
        *(
            make_book(f"n{number}", entries=[make_entry(state=state)] if state else [])
            for number, state in enumerate(states)
        )
    )
    versions = {"resolved": make_version(), "missing": None}
    return CacheFacts(
        make_cache(copies=max(1, wanted), min_ready=min_ready, **cache),
        versions[version] if isinstance(version, str) else version,
        tally_copies(Uid("v1"), books, wanted, books),
        shortage,
    )


def verdict(status, kind=Condition.READY):
    found = next(item for item in status.conditions if item.type == kind)
    return found.status == "True", found.reason


def outlook(status):
    kinds = (Condition.READY, Condition.RECONCILING, Condition.STALLED)
    flags = {kind: verdict(status, kind)[0] for kind in kinds}
    return (
        flags[Condition.READY],
        flags[Condition.RECONCILING],
        flags[Condition.STALLED],
        verdict(status)[1],
    )


SPACE = Shortage(Reason.INSUFFICIENT_SPACE, "0 of 1 copies have a node: free space")
CONTRADICTED = make_version(
    spec_digest=digest("e"),
    content_digest=digest("c"),
    content_manifest_digest=digest("d"),
    node_label_key="k/l",
)
UNREPORTED = Shortage(Reason.WAITING, "agents have not reported")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            facts([CACHED, CACHED]),
            (True, False, False, Reason.CACHED),
            id="all copies are verified",
        ),
        pytest.param(
            facts([CACHED, DOWNLOADING]),
            (True, True, False, Reason.DOWNLOADING),
            id="enough are verified, one is on its way",
        ),
        pytest.param(
            facts([CACHED, DOWNLOADING, FAILED]),
            (True, True, False, Reason.DEGRADED),
            id="C41: enough are verified, one has failed",
        ),
        pytest.param(
            facts([CACHED, FAILED]),
            (True, False, False, Reason.DEGRADED),
            id="enough are verified, the rest has failed",
        ),
        pytest.param(
            facts([CACHED], copies=2, shortage=SPACE),
            (True, False, False, Reason.DEGRADED),
            id="C36: enough are verified, there is no room for more",
        ),
        pytest.param(
            facts([CACHED, EVICTED]),
            (True, False, False, Reason.EVICTED),
            id="enough are verified, one has made room",
        ),
        pytest.param(
            facts([EVICTED, EVICTED]),
            (False, False, True, Reason.EVICTED),
            id="all have made room",
        ),
        pytest.param(
            pressed_facts(CACHED),
            (True, False, False, Reason.DEGRADED),
            id="C54: enough are verified, one was given up under disk pressure",
        ),
        pytest.param(
            pressed_facts(),
            (False, False, True, Reason.DISK_PRESSURE),
            id="C54: all were given up under disk pressure",
        ),
        pytest.param(
            facts([CACHED, VERIFYING], min_ready=2),
            (False, True, False, Reason.VERIFYING),
            id="too few, but being verified",
        ),
        pytest.param(
            facts([None, None]),
            (False, True, False, Reason.WAITING),
            id="no agent has taken notice yet",
        ),
        pytest.param(
            facts([FAILED, PENDING]),
            (False, True, False, Reason.WAITING),
            id="one has failed, another may still succeed",
        ),
        pytest.param(
            facts([FAILED]),
            (False, False, True, Reason.TRANSFER_FAILED),
            id="all have failed without a known reason",
        ),
        pytest.param(
            facts([], copies=1, shortage=SPACE),
            (False, False, True, Reason.INSUFFICIENT_SPACE),
            id="no node has room",
        ),
        pytest.param(
            facts([], copies=1, shortage=UNREPORTED),
            (False, True, False, Reason.WAITING),
            id="the agents have not reported yet",
        ),
        pytest.param(
            facts([], copies=1, version="missing"),
            (False, False, True, Reason.MODEL_VERSION_NOT_FOUND),
            id="the version does not exist",
        ),
        pytest.param(
            facts([], copies=1, version=make_version(resolved=False)),
            (False, True, False, Reason.MODEL_VERSION_NOT_READY),
            id="the version is new",
        ),
        pytest.param(
            facts(
                [],
                copies=1,
                version=make_version(
                    resolved=False,
                    conditions=(
                        make_condition(Reason.AUTH_FAILED, "False", message="wrong key"),
                        make_condition(Reason.AUTH_FAILED, "True", Condition.STALLED),
                    ),
                ),
            ),
            (False, False, True, Reason.MODEL_VERSION_NOT_READY),
            id="the version cannot be resolved",
        ),
        pytest.param(
            facts([CACHED], version=CONTRADICTED),
            (False, False, True, Reason.DIGEST_MISMATCH),
            id="the verified bytes are not those of the pin",
        ),
        pytest.param(
            facts([CACHED, CACHED], version=make_version("m2", uid="v2", resolved=False)),
            (False, True, False, Reason.MODEL_VERSION_NOT_READY),
            id="copies of an older version do not make a newer one ready",
        ),
    ],
)
def test_the_conditions_follow_one_rule_when(given, expected):
    assert outlook(make_cache_status(given, NOW)) == expected


def test_a_version_that_is_not_ready_lends_its_own_reason_and_message():
    version = make_version(
        resolved=False,
        conditions=(make_condition(Reason.AUTH_FAILED, "False", message="wrong key"),),
    )
    status = make_cache_status(facts([], copies=1, version=version), NOW)
    assert "AuthFailed: wrong key" in status.conditions[0].message


def test_C41_counters_and_progress_are_those_of_live_copies():
    given = facts([CACHED, None, FAILED], copies=4)
    status = make_cache_status(given, NOW)
    counts = status.copies
    assert (counts.wanted, counts.placed, counts.ready, counts.failed) == (4, 3, 1, 1)
    assert (status.copies_summary, status.progress) == ("1/4", "20%")
    assert (status.size_bytes, status.size) == (GIB, "1Gi")


def test_C41_what_a_dead_node_said_last_does_not_count():
    books = make_books(
        make_book("n1", entries=[make_entry()], liveness=Liveness.LOST),
        make_book("n2", entries=[make_entry(state=DOWNLOADING, progress_percent=50)]),
    )
    live = [name for name, book in books.items() if book.has_live_agent]
    tally = tally_copies(Uid("v1"), live, 1, books)
    status = make_cache_status(CacheFacts(make_cache(), make_version(), tally, None), NOW)
    assert status.copies_summary == "0/1"
    assert status.progress == "50%"


@pytest.mark.parametrize(
    ("percents", "expected"),
    [
        pytest.param([0], "0%", id="nothing"),
        pytest.param([9], "0%", id="less than a tenth"),
        pytest.param([99], "90%", id="almost all is not all"),
        pytest.param([100, 50], "70%", id="the mean is rounded down"),
    ],
)
def test_progress_moves_in_tenths(percents, expected):
    books = make_books(
        *(
            make_book(f"n{n}", entries=[make_entry(state=DOWNLOADING, progress_percent=percent)])
            for n, percent in enumerate(percents)
        )
    )
    tally = tally_copies(Uid("v1"), books, len(percents), books)
    status = make_cache_status(CacheFacts(make_cache(), make_version(), tally, None), NOW)
    assert status.progress == expected


def test_nothing_wanted_is_no_division_by_zero():
    status = make_cache_status(facts([], copies=0, shortage=SPACE), NOW)
    assert (status.copies_summary, status.progress) == ("0/0", "0%")


@pytest.mark.parametrize("reason", [Reason.CREDENTIALS_EXPIRED, Reason.AUTH_FAILED])
def test_a_source_that_cannot_be_signed_for_is_the_reason_that_people_see(reason):
    failed = make_entry(state=FAILED, reason=reason, message="the operator cannot sign")
    books = make_books(make_book("n1", entries=[failed]), make_book("n2", entries=[make_entry()]))
    for nodes, shown in ((["n1"], reason), (["n1", "n2"], Reason.DEGRADED)):
        tally = tally_copies(Uid("v1"), nodes, len(nodes), books)
        status = make_cache_status(CacheFacts(make_cache(), make_version(), tally, None), NOW)
        assert verdict(status)[1] == shown
        assert f"{reason}: the operator cannot sign" in status.conditions[0].message
        assert status.failures[0].reason == reason


def test_C40_failures_are_capped_counted_and_cut():
    books = make_books(
        *(
            make_book(
                f"n{n:03}",
                entries=[make_entry(state=FAILED, reason="NotAModel", message="x" * 512)],
            )
            for n in range(300)
        )
    )
    tally = tally_copies(Uid("v1"), books, 300, books)
    facts_ = CacheFacts(make_cache(copies=300), make_version(), tally, None)
    status = make_cache_status(facts_, NOW)
    assert [failure.node for failure in status.failures] == [f"n{n:03}" for n in range(8)]
    assert status.failures_omitted == 292
    assert verdict(status) == (False, Reason.NOT_A_MODEL)
    assert len(status.model_dump_json(by_alias=True)) < 10_000


def test_the_most_common_known_reason_of_the_failures_is_that_of_the_whole():
    reasons = ["NotAModel", "StoreError", "StoreError", "MadeUp", "MadeUp", "MadeUp"]
    books = make_books(
        *(
            make_book(f"n{n}", entries=[make_entry(state=FAILED, reason=reason, message="why")])
            for n, reason in enumerate(reasons)
        )
    )
    tally = tally_copies(Uid("v1"), books, 6, books)
    status = make_cache_status(CacheFacts(make_cache(), make_version(), tally, None), NOW)
    assert verdict(status)[1] == Reason.STORE_ERROR
    assert "6 failed, first on node n0: NotAModel: why" in status.conditions[0].message


def test_the_track_names_version_content_and_label():
    version = make_version(
        content_digest=digest("c"), content_manifest_digest=digest("d"), node_label_key="k/l"
    )
    track = make_cache_status(facts([CACHED], version=version), NOW).tracks[0]
    assert (track.name, track.model_version, track.uid) == ("stable", "m1", "v1")
    assert (track.content_digest, track.node_label_key) == (digest("c"), "k/l")
    contradicted = make_cache_status(facts([CACHED], version=CONTRADICTED), NOW).tracks[0]
    assert contradicted.node_label_key is None
    missing = make_cache_status(facts([], copies=1, version="missing"), NOW).tracks[0]
    assert (missing.model_version, missing.uid) == ("m1", None)


def test_an_unchanged_status_is_equal_however_late_it_is_computed():
    first = make_cache_status(facts([CACHED]), NOW)
    again = facts([CACHED], conditions=first.conditions)
    assert make_cache_status(again, NOW + timedelta(hours=1)) == first


def test_the_transition_time_moves_only_when_the_status_flips():
    first = make_cache_status(facts([CACHED]), NOW)
    later = NOW + timedelta(hours=1)
    second = make_cache_status(facts([None], conditions=first.conditions), later)
    times = {item.type: item.last_transition_time for item in second.conditions}
    assert times == {
        Condition.READY: later,
        Condition.RECONCILING: later,
        Condition.STALLED: NOW,
    }


def test_copies_that_wait_for_a_limit_say_so_with_who_is_ahead():
    queued = make_entry(state=PENDING, reason=Reason.QUEUED, message="2 nodes read s3://m/ now")
    books = make_books(make_book("n0", entries=[queued]), make_book("n1", entries=[]))
    tally = tally_copies(Uid("v1"), books, 2, books)
    status = make_cache_status(CacheFacts(make_cache(copies=2), make_version(), tally, None), NOW)
    assert outlook(status) == (False, True, False, Reason.QUEUED)
    assert "2 nodes read s3://m/ now" in status.conditions[0].message
    reading = make_books(
        make_book("n0", entries=[queued]), make_book("n1", entries=[make_entry(state=DOWNLOADING)])
    )
    tally = tally_copies(Uid("v1"), reading, 2, reading)
    status = make_cache_status(CacheFacts(make_cache(copies=2), make_version(), tally, None), NOW)
    assert outlook(status)[-1] == Reason.DOWNLOADING


DISK, HOST = Tier.DISK, Tier.HOST


def in_host(*entries, wanted=2, min_ready=1, shortage=None):
    """The status of a ModelCache in tier Host; one entry for each node."""
    books = make_books(*(make_book(f"n{n}", entries=[entry]) for n, entry in enumerate(entries)))
    tally = tally_copies(Uid("v1"), books, wanted, books, HOST)
    cache = make_cache(copies=wanted, min_ready=min_ready, tier=HOST)
    return make_cache_status(CacheFacts(cache, make_version(), tally, shortage), NOW)


UNFIT = make_entry(tier=DISK, reason="StoreError", message="no locked memory")


@pytest.mark.parametrize(
    ("status", "expected", "words"),
    [
        pytest.param(
            in_host(make_entry(tier=HOST), make_entry(tier=HOST)),
            (True, False, False, Reason.CACHED),
            "2 verified copies in tier Host",
            id="all are in memory",
        ),
        pytest.param(
            in_host(make_entry(tier=HOST), make_entry(tier=DISK, reason="Loading")),
            (True, True, False, Reason.LOADING),
            "2 of 2 copies are verified, 1 of 2 in tier Host",
            id="one is on its disk alone",
        ),
        pytest.param(
            in_host(make_entry(), make_entry()),
            (True, True, False, Reason.LOADING),
            "0 of 2 in tier Host",
            id="agents that do not tell a tier have the disk",
        ),
        pytest.param(
            in_host(make_entry(tier=HOST), UNFIT),
            (True, False, False, Reason.DEGRADED),
            "1 of 2 in tier Host; node n1: StoreError: no locked memory",
            id="one node says why it cannot",
        ),
        pytest.param(
            in_host(make_entry(tier=HOST), make_entry(tier=DISK), shortage=SPACE),
            (True, False, False, Reason.DEGRADED),
            "1 of 2 in tier Host; InsufficientSpace: ",
            id="one has no node with the tier",
        ),
        pytest.param(
            in_host(make_entry(tier=HOST), make_entry(state=DOWNLOADING)),
            (True, True, False, Reason.DOWNLOADING),
            "1 of 2 copies are verified, 1 of 2 in tier Host, 50%",
            id="one is being fetched",
        ),
        pytest.param(
            in_host(make_entry(tier=DISK), make_entry(state=EVICTED)),
            (True, False, False, Reason.EVICTED),
            "1 of 2 copies are verified, 0 of 2 in tier Host; 1 given up",
            id="one has made room",
        ),
        pytest.param(
            in_host(make_entry(tier=HOST), make_entry(state=PENDING), min_ready=2),
            (False, True, False, Reason.WAITING),
            "1 of 2 copies are verified, 1 of 2 in tier Host",
            id="fewer verified than minReady",
        ),
    ],
)
def test_ready_counts_verified_copies_and_the_message_says_how_many_are_in_the_tier(
    status, expected, words
):
    assert outlook(status) == expected
    assert words in status.conditions[0].message
    assert status.copies_summary == f"{status.copies.ready}/2"


def test_on_disk_every_verified_copy_is_in_the_tier():
    copies = make_cache_status(facts([CACHED, CACHED, PENDING]), NOW).copies
    assert copies.in_tier == copies.ready == 2


def test_C54_degraded_says_what_was_given_up_and_when_it_comes_back():
    status = make_cache_status(pressed_facts(CACHED), NOW)
    ready = next(c for c in status.conditions if c.type == Condition.READY)
    assert "1 under disk pressure, first on node n9: given up: it comes back when" in ready.message
