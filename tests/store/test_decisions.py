"""The last decisions outlive the process, are bounded, and never stop the store."""

from __future__ import annotations

from modelcache_agent.decide.actions import Victim
from modelcache_agent.tiers.decision_book import DecisionBook
from modelcache_api.decisions import MOST_DECISIONS, DecisionKind
from modelcache_api.names import Tier


def a_victim(number):
    return Victim(f"sha256:{number:064x}", "lru", float(number), "last_used=1", "uid=u needs room")


def test_the_newest_come_first_and_the_oldest_are_dropped(tmp_path):
    book = DecisionBook(tmp_path / "decisions.json", lambda: 7.0)
    for number in range(MOST_DECISIONS + 3):
        book.note_eviction(a_victim(number), ("u1",), 10)
    book.note_pressure(DecisionKind.PRESSURE_BEGAN, "92 %", Tier.HOST)
    again = DecisionBook(tmp_path / "decisions.json", lambda: 8.0)
    again.load()
    assert again.look() == book.look()
    first, second, *rest = again.look().decisions
    assert (first.kind, first.cause, first.at) == (DecisionKind.PRESSURE_BEGAN, "92 %", 7.0)
    assert (first.tier, second.tier) == (Tier.HOST, Tier.DISK)
    assert (second.score, second.policy, second.inputs) == (52.0, "lru", "last_used=1")
    assert len(rest) == MOST_DECISIONS - 2


def test_a_damaged_book_counts_as_empty(tmp_path, caplog):
    (tmp_path / "decisions.json").write_text('{"decisions": [{"at": "then"}]}')
    book = DecisionBook(tmp_path / "decisions.json", lambda: 7.0)
    book.load()
    assert book.look().decisions == ()
    assert "damaged" in caplog.text


def test_a_disk_that_takes_no_writes_costs_no_decision(tmp_path):
    book = DecisionBook(tmp_path / "missing" / "decisions.json", lambda: 7.0)
    book.note_eviction(a_victim(1), (), 10)
    assert len(book.look().decisions) == 1
