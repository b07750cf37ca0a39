"""The input log: values come back as they were, and the same planner decides the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.agent_world import a_flight, a_held, a_world, an_entry, digest_of
from modelcache_agent.decide.gpu.capacity import Budget
from modelcache_agent.decide.gpu.room import Key
from modelcache_agent.decide.gpu.world import GpuView, OnDevice
from modelcache_agent.decide.history import History, LoadCost
from modelcache_agent.decide.host_pressure import HostPressure
from modelcache_agent.decide.host_world import HostSetback, HostView
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.decide.measures import EvictionCause
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import POLICIES
from modelcache_agent.decide.setbacks import Setback
from modelcache_agent.decide.watermarks import Pressure
from modelcache_agent.inputs.codec import CodecError, decode, encode
from modelcache_agent.inputs.log import InputLog
from modelcache_agent.inputs.program import main
from modelcache_agent.inputs.records import (
    Decided,
    Happening,
    Header,
    LogError,
    hash_plan,
    read_records,
)
from modelcache_agent.inputs.replay import summarize
from modelcache_agent.tiers.history_book import Wait
from modelcache_api.names import Reason, Tier

HEADER = Header("lru", "1.2.3")
A, B = an_entry("a", evictable=True), an_entry("b", 60)
RICH = a_world(
    A,
    B,
    held=[a_held("a", history=History(attaches=0.1, load=LoadCost(1.5, 1e-9)))],
    flights=(a_flight(B, verified_bytes=3),),
    setbacks={"b": Setback(Reason.AUTH_FAILED, "403", 1.25, 2, "s", None)},
    pressure=Pressure(1, 2, "full"),
    attached=frozenset({"b", "x"}),
)


def comparable(world):
    """Mappings that are dicts and those that cannot be written are the same to a plan."""
    return replace(world, ledger=replace(world.ledger, versions=dict(world.ledger.versions)))


class Folder:
    """An input log below a temporary folder, at a clock that goes on by one."""

    def __init__(self, path, most_bytes=1 << 20):
        self.path = path
        self.now = 0.0
        self.log = InputLog(
            path / "inputs", most_bytes, HEADER, clock=self.tick, size_of=lambda _digest: 10
        )

    def tick(self):
        self.now += 1
        return self.now

    def decide(self, world, policy="lru"):
        self.log.note_decision(world, make_plan(world, POLICIES[policy]))

    @property
    def current(self):
        return self.path / "inputs" / "current.jsonl"

    @property
    def lines(self):
        return self.current.read_text().splitlines()


def test_a_world_comes_back_as_it_was(tmp_path):
    folder = Folder(tmp_path)
    folder.decide(RICH)
    header, decided = read_records(folder.lines)
    assert header == HEADER
    assert comparable(decided.world) == comparable(RICH)
    assert type(decided.world.entries[0].origin) is type(A.origin)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3).map(tuple)
            | st.frozensets(st.text(), max_size=3)
            | st.dictionaries(st.text(), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_whatever_is_written_is_read_again(value):
    assert decode(json.loads(json.dumps(encode(value)))) == value


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"$": "data", "of": "os:system", "v": {}}', id="another package"),
        pytest.param(
            '{"$": "data", "of": "modelcache_agent.decide.planner:make_plan", "v": {}}',
            id="a function",
        ),
        pytest.param(
            '{"$": "data", "of": "modelcache_agent.decide.world:World", "v": {"x": 1}}',
            id="a field of another release",
        ),
        pytest.param('{"$": "word", "of": "modelcache_api.names:Reason", "v": "x"}', id="a word"),
        pytest.param('{"$": "data", "of": "modelcache_api.names:__doc__", "v": 1}', id="no type"),
        pytest.param('{"$": "data", "of": "modelcache_api.nothing:X", "v": 1}', id="no module"),
    ],
)
def test_a_log_makes_only_values_of_decisions(text):
    with pytest.raises(CodecError):
        decode(json.loads(text))


def test_what_has_no_form_is_refused_when_it_is_written():
    with pytest.raises(CodecError, match="object has no form"):
        encode(object())


def test_lines_hold_what_changed_and_a_turn_without_news_makes_none(tmp_path):
    folder = Folder(tmp_path)
    world = a_world(A, held=[a_held("a")])
    folder.decide(world)
    folder.decide(replace(world, now=world.now + 30))
    assert len(folder.lines) == 2, "header and the first decision"
    older = [replace(world.held[0], history=History(attaches=0.5))]
    folder.decide(replace(world, held=tuple(older)))
    assert len(folder.lines) == 2, "ageing alone is no news"
    folder.decide(replace(world, held=tuple(older), attached=frozenset({"a"}), now=7.0))
    last = json.loads(folder.lines[-1])
    assert set(last["set"]) == {"attached", "now"}
    assert set(last["held"]) == {digest_of("a")}, "what had aged is told with the next news"
    *_, decided = read_records(folder.lines)
    assert decided.world.held == tuple(older)


def test_what_is_gone_is_gone_when_it_is_read(tmp_path):
    folder = Folder(tmp_path)
    folder.decide(a_world(A, held=[a_held("a")], mounted=frozenset({digest_of("a")})))
    folder.decide(a_world(B))
    *_, decided = read_records(folder.lines)
    assert comparable(decided.world) == comparable(a_world(B))


def test_arrivals_durations_and_releases_stand_between_the_decisions(tmp_path):
    folder = Folder(tmp_path)
    shown = a_world(A, held=[a_held("a")], mounted=frozenset({digest_of("a")}))
    folder.log.note_load(digest_of("a"), LoadCost(0.5, 1e-9))
    folder.log.note_attach(digest_of("a"), Wait(40.0, 2.5))
    folder.decide(shown)
    folder.decide(replace(shown, mounted=frozenset()))
    records = list(read_records(folder.lines))
    happened = [one for one in records if isinstance(one, Happening)]
    assert [one.kind for one in happened] == ["load", "attach", "release"]
    assert happened[0] == Happening(1.0, "load", digest_of("a"), 10, 0.5, 1e-9)
    assert (happened[1].at, happened[1].waited_seconds) == (42.5, 2.5)
    assert isinstance(records[-1], Decided)


LOCKED = a_held("a")
HOST = HostView(
    Ledger(30, versions={LOCKED.digest: LOCKED.blobs}),
    setbacks={digest_of("b"): HostSetback(Reason.HOST_TIER_BYPASSED, "readers hold it", 3.0)},
    pressure=HostPressure(room_bytes=5),
    condemned=frozenset({LOCKED.digest}),
)


def test_a_host_tier_comes_back_as_it_was_and_goes_when_it_is_off(tmp_path):
    folder = Folder(tmp_path)
    folder.decide(a_world(A, held=[LOCKED], host=HOST))
    folder.decide(a_world(A, held=[LOCKED]))
    _, with_host, without = read_records(folder.lines)
    assert replace(with_host.world.host.ledger, versions={}) == replace(HOST.ledger, versions={})
    assert replace(with_host.world.host, ledger=HOST.ledger) == HOST
    assert dict(with_host.world.host.ledger.versions) == dict(HOST.ledger.versions)
    assert without.world.host is None
    assert summarize(folder.lines).differences == 0


def test_how_much_memory_is_free_is_no_news_and_is_told_with_the_next(tmp_path):
    folder = Folder(tmp_path)
    world = a_world(A, held=[LOCKED], host=HOST)
    folder.decide(world)
    drifted = replace(HOST, pressure=HostPressure(room_bytes=6))
    folder.decide(replace(world, host=drifted, unix_now=9.0))
    assert len(folder.lines) == 2
    folder.decide(replace(world, host=replace(drifted, loading=frozenset({digest_of("b")}))))
    assert set(json.loads(folder.lines[-1])["set"]) == {"host.loading", "host.pressure"}


KEY = Key("models", "a")
GPU = GpuView(
    Budget(30, 30, 0, is_shared_with_host=False, why="so much is allowed"),
    held={KEY: OnDevice(LOCKED.digest, 10)},
    namespaces={"a": "models"},
    condemned=frozenset({KEY}),
)


def test_a_card_comes_back_as_it_was_and_how_much_of_it_is_free_is_no_news(tmp_path):
    folder = Folder(tmp_path)
    on_card = A.model_copy(update={"tier": Tier.GPU})
    world = a_world(on_card, held=[LOCKED], gpu=GPU)
    folder.decide(world)
    less = replace(GPU, budget=replace(GPU.budget, capacity_bytes=29, foreign_bytes=1))
    folder.decide(replace(world, gpu=less))
    assert len(folder.lines) == 2
    folder.decide(replace(world, gpu=replace(less, lingering_bytes=1)))
    assert set(json.loads(folder.lines[-1])["set"]) == {"gpu.budget", "gpu.lingering_bytes"}
    folder.decide(a_world(on_card, held=[LOCKED]))
    _, first, second, without = read_records(folder.lines)
    assert (first.world.gpu, without.world.gpu) == (GPU, None)
    assert second.world.gpu == replace(less, lingering_bytes=1)
    assert summarize(folder.lines).differences == 0


def test_a_file_that_could_not_be_turned_at_first_begins_with_everything_all_the_same(
    tmp_path, monkeypatch
):
    folder = Folder(tmp_path, most_bytes=2)
    folder.decide(a_world(A))
    write, failures = Path.write_text, [OSError(28, "No space left on device")]

    def fail_once(path, *args, **kwargs):
        if failures:
            raise failures.pop()
        return write(path, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", fail_once)
    folder.decide(a_world(A, B))
    assert summarize(folder.lines).decisions == 1


def test_two_files_are_bounded_together_and_each_is_replayed_alone(tmp_path):
    folder = Folder(tmp_path, most_bytes=40_000)
    for number in range(200):
        names = [f"m{number}", f"m{number + 1}"]
        folder.decide(a_world(*map(an_entry, names), held=[a_held(name) for name in names]))
    previous = folder.path / "inputs" / "previous.jsonl"
    assert folder.current.stat().st_size + previous.stat().st_size < 50_000
    for file in (folder.current, previous):
        summary = summarize(file.read_text().splitlines())
        assert summary.differences == 0
        assert summary.decisions >= 1


def test_a_disk_that_takes_no_writes_is_told_of_once_and_stops_nothing(tmp_path, caplog):
    (tmp_path / "inputs").write_text("no folder")
    folder = Folder(tmp_path)
    folder.decide(RICH)
    folder.decide(a_world(A))
    assert caplog.text.count("the input log cannot be written") == 1
    (tmp_path / "inputs").unlink()
    folder.decide(a_world(A))
    assert summarize(folder.lines).decisions == 1, "then it goes on, and says all"


def test_a_world_that_has_no_form_costs_its_line_and_not_the_agent(tmp_path, caplog):
    folder = Folder(tmp_path)
    folder.decide(RICH)
    folder.decide(replace(a_world(A), fresh=object()))
    assert "a decision is missing in the input log" in caplog.text
    folder.decide(a_world(B))
    assert summarize(folder.lines).decisions == 2


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_the_program_says_what_came_of_it(tmp_path, capsys):
    folder = Folder(tmp_path)
    folder.decide(RICH)
    folder.decide(a_world(B))
    good = write(tmp_path / "good", *folder.lines)
    assert main([good]) == 0
    assert "2 decisions, 0 attaches: all decided alike" in capsys.readouterr().out
    other = json.loads(folder.lines[-1]) | {"plan": "0" * 32}
    bad = write(tmp_path / "bad", *folder.lines[:-1], json.dumps(other))
    assert main([good, bad]) == 1
    assert "1 decided otherwise, the first at 2.000" in capsys.readouterr().out


def test_a_log_of_an_older_agent_is_read_and_says_whose_decisions_it_has(tmp_path, capsys):
    """It knew neither copies that are asked to go nor causes in one word."""
    folder = Folder(tmp_path)
    world = a_world(A, held=[a_held("a")], pressure=Pressure(1, 1, "full"), in_use=frozenset())
    folder.decide(world)
    header, line = folder.lines
    row = json.loads(line)
    del row["set"]["dismissed"]
    plan = make_plan(world, POLICIES["lru"])
    assert [victim.kind for victim in plan.victims] == [EvictionCause.PRESSURE]
    older = replace(plan, victims=tuple(replace(v, kind=EvictionCause.ROOM) for v in plan.victims))
    log = write(tmp_path / "log", header, json.dumps(row | {"plan": hash_plan(older)}))
    assert main([log]) == 1
    told = capsys.readouterr().out
    assert "1 decisions, 0 attaches: 1 decided otherwise" in told
    assert "agent 1.2.3 wrote it" in told
    (_, decided) = read_records(Path(log).read_text().splitlines())
    assert comparable(decided.world) == comparable(world)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param(['{"format": 9}'], "line 1: format 9 is not 1", id="another format"),
        pytest.param(["{}"], "line 1: 'set': replay it with", id="no record"),
        pytest.param(["torn", '{"format": 1}'], "line 1 is no JSON", id="damage within"),
    ],
)
def test_a_log_that_cannot_be_read_says_where_and_what_helps(tmp_path, capsys, lines, said):
    assert main([write(tmp_path / "log", *lines)]) == 2
    assert said in capsys.readouterr().err


def test_a_log_without_its_beginning_is_refused(tmp_path):
    folder = Folder(tmp_path)
    folder.decide(RICH)
    with pytest.raises(LogError, match="names no policy"):
        summarize(folder.lines[1:])


def test_a_last_line_that_a_kill_tore_is_left_out(tmp_path):
    folder = Folder(tmp_path)
    folder.decide(RICH)
    folder.decide(a_world(B))
    assert summarize([*folder.lines[:-1], folder.lines[-1][:50]]).decisions == 1


def test_a_missing_file_is_one_line(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
