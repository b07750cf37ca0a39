"""An agent's input log as text, without the agent: a small disk, and pods that come and go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fakes.agent_world import a_held, a_world, an_entry, digest_of
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import POLICIES
from modelcache_agent.inputs.records import (
    Happening,
    Header,
    WorldWriter,
    write_happening,
    write_header,
)

POLICY = POLICIES["lru"]


class PlayedLog:
    """The first line says what the node holds at 0; sizes are those of `a_held`."""

    def __init__(self, *held: str, capacity: int, mounted=()) -> None:
        self.writer = WorldWriter()
        self.world = a_world(
            *(an_entry(name, evictable=True) for name in held),
            capacity=capacity,
            held=[a_held(name) for name in held],
            mounted=frozenset(map(digest_of, mounted)),
        )
        self.lines = [write_header(Header(POLICY.name, "1.2.3"))]
        self.decide(0.0)

    def decide(self, at: float, **changes) -> None:
        self.world = replace(self.world, **changes)
        self.lines.append(self.writer.write(at, self.world, make_plan(self.world, POLICY)))

    def attach(self, name: str, asked_at: float, waited: float = 0.0, size: int | None = 10):
        at = asked_at + waited
        one = Happening(at, "attach", digest_of(name), size, waited_seconds=waited)
        self.lines.append(write_happening(one))

    def release(self, name: str, at: float) -> None:
        self.lines.append(write_happening(Happening(at, "release", digest_of(name))))

    def save(self, path: Path) -> Path:
        path.write_text("".join(f"{line}\n" for line in self.lines), encoding="utf-8")
        return path
