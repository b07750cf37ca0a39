"""One node's disk under a trace of attaches: real policies, real history, models of equal size."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fakes.agent_world import digest_of
from modelcache_agent.decide.ledger import Blob, Ledger
from modelcache_agent.decide.policies import EvictionPolicy
from modelcache_agent.decide.policies.gdsf import find_priority
from modelcache_agent.decide.victims import choose_victims
from modelcache_agent.decide.world import Held
from modelcache_agent.tiers.history_book import HistoryBook

SIZE = 10


@dataclass
class Trace:
    """Each request is a pod that attaches a model and ends before the next one."""

    policy: EvictionPolicy
    capacity: int = 4
    seconds_between: float = 60.0
    now: float = 1_000_000.0
    used: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.book = HistoryBook(Path("never-written"), lambda: self.now)

    def ask(self, name: str) -> bool:
        """True if the model was there."""
        self.now += self.seconds_between
        is_hit = name in self.used
        if not is_hit:
            if len(self.used) == self.capacity:
                self.evict_one()
            self.book.note_arrival(digest_of(name))
        self.book.note_attach(digest_of(name))
        self.used[name] = self.now
        return is_hit

    def count_until_settled(self, names: str, requests: int) -> int:
        """Requests, the names in turn, until the last one that was not there."""
        hits = [self.ask(names[number % len(names)]) for number in range(requests)]
        return max((number + 1 for number, is_hit in enumerate(hits) if not is_hit), default=0)

    def evict_one(self) -> None:
        held = {name: self.look(name) for name in self.used}
        versions = {content.digest: content.blobs for content in held.values()}
        (victim,) = choose_victims(
            held.values(),
            SIZE,
            ledger=Ledger(self.capacity * SIZE, versions),
            leaving=frozenset(),
            condemned=frozenset(),
            policy=self.policy,
        )
        self.book.note_eviction(find_priority(victim.held))
        del self.used[next(name for name in held if held[name] == victim.held)]

    def look(self, name: str) -> Held:
        digest = digest_of(name)
        blobs = frozenset({Blob(f"blob of {name}", SIZE)})
        return Held(digest, blobs, self.used[name], history=self.book.look(digest))
