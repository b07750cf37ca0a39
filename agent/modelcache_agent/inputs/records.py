"""The lines of an input log, and what they say. Pure. docs/inputs.md has the format.

A decision's line holds what changed of the world since the line before; the first of a file, and
one after a line that could not be written, holds all of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from modelcache_agent.decide.actions import Plan
from modelcache_agent.decide.gpu.world import GpuView
from modelcache_agent.decide.history import NO_HISTORY
from modelcache_agent.decide.host_world import HostView
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.decide.world import World
from modelcache_agent.inputs.codec import CodecError, decode, encode, to_text

FORMAT: Final = 1
_LEDGER: Final = "ledger."
_HOST: Final = "host."
_HOST_LEDGER: Final = f"{_HOST}{_LEDGER}"
_GPU: Final = "gpu."
_HELD: Final = "held"
_ORDER: Final = "order"
# What moves from turn to turn although nothing happens: times, and how much memory is free.
_DRIFTING: Final = frozenset({"now", "unix_now", f"{_HOST}pressure", f"{_GPU}budget"})


def hash_plan(plan: Plan) -> str:
    """A short name of a decision: equal plans, and no others, have equal names."""
    return hashlib.sha256(to_text(encode(plan)).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Header:
    """How the decisions of a file were made."""

    policy: str
    agent_version: str


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that the history counts: `attach`, `release` or `load`. `at` is in Unix seconds.

    Of a load also the seconds before its first byte and for each byte; of an attach, for how long
    the volume had asked for it.
    """

    at: float
    kind: str
    digest: str
    size_bytes: int | None = None
    start_seconds: float | None = None
    seconds_per_byte: float | None = None
    waited_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision: all that it was made of, and the hash of what it was."""

    at: float
    world: World
    plan_hash: str


Record = Header | Happening | Decided


class LogError(Exception):
    """The log cannot be read; one sentence that names the line and the cure."""


@dataclass(slots=True)
class WorldWriter:
    """Makes the lines of decisions; knows what the lines before have said."""

    _told: dict[str, str] = field(default_factory=dict)
    _told_held: dict[str, str] = field(default_factory=dict)
    _last: tuple[str, str] = ("", "")

    def forget(self) -> None:
        """The next line says all."""
        self._told, self._told_held, self._last = {}, {}, ("", "")

    def write(self, at: float, world: World, plan: Plan) -> str | None:
        """The line, or None if nothing has changed but what drifts, and the decision has not.

        Histories age with time, so their ageing alone makes no line either.
        """
        parts = {name: encode(value) for name, value in _split(world).items()}
        held: dict[str, Any] = {one.digest: encode(one) for one in world.held}
        plan_hash = hash_plan(plan)
        seen = to_text({name: part for name, part in parts.items() if name not in _DRIFTING})
        seen += to_text([encode(dataclasses.replace(h, history=NO_HISTORY)) for h in world.held])
        if (seen, plan_hash) == self._last:
            return None
        is_full = not self._told
        self._last = (seen, plan_hash)
        changed = _update(self._told, parts)
        row = {
            "at": at,
            "set": changed,
            _HELD: _update(self._told_held, held),
            "plan": plan_hash,
        }
        return to_text(row | {"full": True} if is_full else row)


def write_header(header: Header) -> str:
    """The first line of a file."""
    return to_text({"format": FORMAT, "policy": header.policy, "agent": header.agent_version})


def write_happening(one: Happening) -> str:
    """The line of a happening."""
    row = {"at": one.at, "event": one.kind, "digest": one.digest, "size": one.size_bytes}
    load = {"start": one.start_seconds, "perByte": one.seconds_per_byte}
    waited = {"waited": one.waited_seconds or None}
    told = row | load | waited
    return to_text({name: value for name, value in told.items() if value is not None})


def read_records(lines: Iterable[str]) -> Iterator[Record]:
    """What the lines say, in order. A last line that was torn by a kill is left out.

    Raises:
        LogError: a line says nothing that is known here.
    """
    parts: dict[str, Any] = {}
    held: dict[str, Any] = {}
    torn: str | None = None
    for number, line in enumerate(lines, start=1):
        if torn is not None:
            raise LogError(torn)
        try:
            row = json.loads(line)
            yield _read(row, parts, held)
        except json.JSONDecodeError:
            torn = f"line {number} is no JSON: the file is damaged, keep the lines before it"
        except (CodecError, KeyError, TypeError, AttributeError) as error:
            raise LogError(
                f"line {number}: {error}: replay it with the release that wrote it"
            ) from error


def _read(row: Mapping[str, Any], parts: dict[str, Any], held: dict[str, Any]) -> Record:
    if "format" in row:
        if row["format"] != FORMAT:
            raise CodecError(f"format {row['format']} is not {FORMAT}")
        return Header(row["policy"], row["agent"])
    if "event" in row:
        return Happening(
            row["at"],
            row["event"],
            row["digest"],
            row.get("size"),
            row.get("start"),
            row.get("perByte"),
            row.get("waited", 0.0),
        )
    if row.get("full"):
        parts.clear()
        held.clear()
    for known, news in ((parts, row["set"]), (held, row[_HELD])):
        for name, value in news.items():
            if value is None:
                known.pop(name, None)
            else:
                known[name] = decode(value["v"])
    return Decided(row["at"], _join(parts, held), row["plan"])


def _split(world: World) -> dict[str, Any]:
    """The world by field; books and faster tiers by theirs, and what is held by digest alone."""
    rest = _list_fields(world)
    book = _list_fields(rest.pop("ledger"), _LEDGER)
    order = tuple(one.digest for one in rest.pop(_HELD))
    host: HostView | None = rest.pop("host")
    tier = {} if host is None else _list_fields(host, _HOST)
    if host is not None:
        del tier[f"{_HOST}ledger"]
        tier |= _list_fields(host.ledger, _HOST_LEDGER)
    gpu: GpuView | None = rest.pop("gpu")
    card = {} if gpu is None else _list_fields(gpu, _GPU)
    return rest | book | tier | card | {_ORDER: order}


def _list_fields(value: Any, prefix: str = "") -> dict[str, Any]:
    return {f"{prefix}{f.name}": getattr(value, f.name) for f in dataclasses.fields(value)}


def _join(parts: Mapping[str, Any], held: Mapping[str, Any]) -> World:
    rest = dict(parts)
    order = rest.pop(_ORDER)
    book, host_book = _take(rest, _LEDGER), _take(rest, _HOST_LEDGER)
    tier, card = _take(rest, _HOST), _take(rest, _GPU)
    return World(
        **rest,
        ledger=Ledger(**book),
        held=tuple(held[digest] for digest in order),
        host=HostView(ledger=Ledger(**host_book), **tier) if host_book else None,
        gpu=GpuView(**card) if card else None,
    )


def _take(rest: dict[str, Any], prefix: str) -> dict[str, Any]:
    names = [name for name in rest if name.startswith(prefix)]
    return {name.removeprefix(prefix): rest.pop(name) for name in names}


def _update(told: dict[str, str], now: Mapping[str, Any]) -> dict[str, Any]:
    """What of it is news, each as `{"v": ...}`; None for what is gone."""
    news: dict[str, Any] = dict.fromkeys(told.keys() - now.keys())
    for name in news:
        del told[name]
    for name, value in now.items():
        text = to_text(value)
        if told.get(name) != text:
            told[name] = text
            news[name] = {"v": value}
    return news
