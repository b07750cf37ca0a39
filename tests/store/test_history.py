"""What the store remembers of attaches, arrivals and transfers."""

from __future__ import annotations

import hashlib
import json

import pytest

from fakes.store_world import find_held, opened, publish
from modelcache_agent.decide.history import NOT_MEASURED, LoadCost, Past
from modelcache_agent.tiers import history_book
from modelcache_agent.tiers.history_book import HistoryBook

DAY = 86_400.0
NOON = 1_000_000.0
OTHER = {"config.json": b"{}", "model.safetensors": b"x" * 1000}


def digest_number(number: int) -> str:
    return f"sha256:{hashlib.sha256(b'%d' % number).hexdigest()}"


def history_of(store, digest):
    return find_held(store, digest).history


def test_C60_counters_survive_an_eviction_and_a_restart(tmp_path):
    root = tmp_path / "store"
    with opened(root, clock=lambda: NOON) as store:
        digest = publish(store)
        store.history.note_load(digest, LoadCost(2.0, 1e-6))
        for _ in range(3):
            store.history.note_attach(digest)
        before = history_of(store, digest)
        assert store.evict(digest, ["v1"])
        store.save_history()
    with opened(root, clock=lambda: NOON + DAY) as store:
        assert publish(store) == digest
        again = history_of(store, digest)
    assert before.visits == 3
    assert (again.arrived, again.visits) == (NOON + DAY, 0)
    assert again.attaches == pytest.approx(3 * 0.5**0.5)
    assert again.recent_attaches == before.recent_attaches
    assert again.load == LoadCost(2.0, 1e-6)
    assert again.inflation > before.inflation, "the clock of gdsf went on with the eviction"


def test_what_was_not_measured_costs_as_much_per_byte_as_the_nodes_other_transfers(tmp_path):
    with opened(tmp_path / "store") as store:
        first, second = publish(store), publish(store, "v2", OTHER)
        assert history_of(store, second).load == NOT_MEASURED
        store.history.note_load(first, LoadCost(2.0, 1e-6))
        assert history_of(store, second).load == LoadCost(2.0, 1e-6)


def test_a_store_without_a_book_knows_from_the_records_when_contents_came(tmp_path):
    root = tmp_path / "store"
    with opened(root, clock=lambda: NOON) as store:
        digest = publish(store)
    assert not (root / "history.json").exists()
    with opened(root, clock=lambda: NOON + DAY) as store:
        store.history.note_attach(digest)
        assert history_of(store, digest).arrived == NOON


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"turn": 1, "inflation": 0, "load": null, "contents": {"../x": {}}}',
        b'{"turn": Infinity, "inflation": 0, "load": null, "contents": {}}',
        b'{"turn": 1, "inflation": NaN, "load": null, "contents": {}}',
    ],
)
def test_a_damaged_book_is_dropped_and_stops_nothing(tmp_path, caplog, content):
    root = tmp_path / "store"
    with opened(root) as store:
        digest = publish(store)
    (root / "history.json").write_bytes(content)
    with opened(root) as store:
        assert history_of(store, digest).attaches == 0
        assert "history of attaches is damaged" in caplog.text
        store.history.note_attach(digest)
        store.save_history()
        assert json.loads((root / "history.json").read_bytes())["turn"] == 1


def test_an_interrupted_write_of_the_book_is_removed_at_the_next_start(tmp_path):
    root = tmp_path / "store"
    with opened(root):
        pass
    (root / ".history.json.tmp").write_text("half")
    with opened(root) as store:
        assert not (root / ".history.json.tmp").exists()
        assert store.quarantine.count() == 0


def test_C62_an_attach_in_the_future_counts_as_now_with_a_warning(tmp_path, caplog):
    path = tmp_path / "history.json"
    book = HistoryBook(path, lambda: NOON + 9 * DAY)
    book.note_attach(digest_number(1))
    book.save(frozenset())
    now = [NOON]
    book = HistoryBook(path, lambda: now[0])
    book.load()
    assert "attached in the future" in caplog.text
    assert book.look(digest_number(1)).attaches == 1.0
    now[0] += 2 * DAY
    assert book.look(digest_number(1)).attaches == pytest.approx(0.5)


def test_the_book_is_bounded_what_is_held_and_the_most_attached_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(history_book, "MOST_GONE", 5)
    book = HistoryBook(tmp_path / "history.json", lambda: NOON)
    for number in range(20):
        for _ in range(number + 1):
            book.note_attach(digest_number(number))
    book.save(frozenset({digest_number(0)}))
    kept = json.loads((tmp_path / "history.json").read_bytes())["contents"]
    assert kept.keys() == {digest_number(number) for number in (0, 15, 16, 17, 18, 19)}


def test_the_book_is_written_when_something_was_counted_and_else_now_and_then(tmp_path):
    path, now = tmp_path / "history.json", [NOON]
    book = HistoryBook(path, lambda: now[0])
    book.save(frozenset())
    assert not path.exists(), "nothing was counted"
    book.note_attach(digest_number(1))
    book.save(frozenset())
    written = path.stat().st_ino
    book.note_running([digest_number(1)])
    book.save(frozenset())
    assert path.stat().st_ino == written, "a running pod alone is no reason to write"
    now[0] += 3600.0
    book.save(frozenset())
    assert path.stat().st_ino != written


def test_what_cannot_be_written_now_is_written_later(tmp_path):
    folder = tmp_path / "folder"
    book = HistoryBook(folder / "history.json", lambda: NOON)
    book.note_attach(digest_number(1))
    book.save(frozenset())
    folder.mkdir()
    book.save(frozenset())
    assert (folder / "history.json").exists()


def test_C60_what_a_book_says_is_read_back_as_it_was(tmp_path):
    path = tmp_path / "history.json"
    book = HistoryBook(path, lambda: NOON)
    book.note_held(digest_number(1), NOON - DAY)
    book.note_load(digest_number(1), LoadCost(0.25, 3e-7))
    book.note_eviction(0.125)
    book.note_attach(digest_number(1))
    book.save(frozenset())
    again = HistoryBook(path, lambda: NOON)
    again.load()
    assert again.look(digest_number(1)) == book.look(digest_number(1))
    fresh = Past(NOON, inflation=0.125).look(NOON, 1, LoadCost(0.25, 3e-7))
    assert again.look(digest_number(2)) == fresh
