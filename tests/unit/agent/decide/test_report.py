"""What the CacheNode's status says."""

from __future__ import annotations

from fakes.agent_world import digest_of
from modelcache_agent.decide.actions import EntryView
from modelcache_agent.decide.ledger import Blob, Ledger
from modelcache_agent.decide.report import make_status, strip_foreign_fields
from modelcache_api.names import EntryState, Reason, Tier

VIEWS = (
    EntryView("b", EntryState.FAILED, Reason.NOT_A_MODEL, "it is an HTML page"),
    EntryView("a", EntryState.CACHED, Reason.CACHED, "", digest_of("a"), 100),
)


def test_the_whole_status():
    book = Ledger(1 << 30, versions={"a": frozenset({Blob("x", 91 << 20)})})
    status = make_status(VIEWS, book, agent_version="0.1.0")
    assert status.disk_summary == "91Mi/1Gi"
    assert (status.models, status.failed, status.agent_version) == (1, 1, "0.1.0")
    assert [entry.uid for entry in status.entries] == ["a", "b"]
    assert [entry.tier for entry in status.entries] == [Tier.DISK, None]
    assert status.conditions == ()


def test_parts_that_arrive_move_the_status_in_tenths():
    statuses = {
        make_status(
            (), Ledger(1000, reservations={"a": 700}, partials={"a": done}), agent_version=""
        )
        for done in range(0, 701, 7)
    }
    assert len(statuses) == 11
    tiers = [status.tiers[0] for status in statuses]
    assert {tier.used_bytes + tier.reserved_bytes for tier in tiers} == {700}


def test_hostile_text_is_cut_and_quoted():
    view = EntryView("a", EntryState.FAILED, Reason.STORE_ERROR, "line\nbreak" + "x" * 2000)
    message = make_status((view,), Ledger(1), agent_version="").entries[0].message
    assert len(message) == 512
    assert "\n" not in message


def test_a_status_read_back_compares_equal():
    status = make_status(VIEWS, Ledger(10), agent_version="1")
    shuffled = status.model_copy(update={"entries": status.entries[::-1]})
    assert strip_foreign_fields(shuffled) == status
