"""A simulated node: tiers in front of the store, and what each attach costs on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from modelcache_agent.decide.history import LoadCost
from modelcache_agent.decide.policies import EvictionPolicy
from modelcache_simulator.contents import Content
from modelcache_simulator.levels import DISK, GPU, HOST, STORE, TIERS
from modelcache_simulator.slab import Slab
from modelcache_simulator.tier import BYPASSED, SimulatedTier, TierPlan, VirtualClock


class Access(NamedTuple):
    """One attach: where the content was found, and what it cost.

    `access_seconds` are those of reading it from there, `load_seconds` the part of them that a
    large enough fastest tier would have saved.
    """

    found: str
    size_bytes: int
    access_seconds: float
    load_seconds: float
    evictions: int
    bypasses: int
    refusals: int


class SimulatedNode:
    """Contents go through the disk, as an agent's; the host tier shows pages of what is there.

    So what leaves the disk leaves the host tier too, and what the disk refuses is read through.
    """

    def __init__(
        self,
        capacities: Mapping[str, int],
        policy: EvictionPolicy,
        costs: Mapping[str, LoadCost],
        *,
        protects_attached: bool,
    ) -> None:
        self.clock = VirtualClock()
        self._costs = costs
        names = [name for name in TIERS if name in capacities]
        below = dict(zip(names, [*names[1:], STORE], strict=True))
        self.tiers = {
            name: SimulatedTier(
                TierPlan(
                    name,
                    capacities[name],
                    load=costs[below[name]],
                    may_bypass=name != DISK,
                    protects_attached=protects_attached,
                    is_slab=name == GPU,
                ),
                policy,
                self.clock,
            )
            for name in names
        }
        self._fastest = names[0]

    def attach(self, content: Content, at: float) -> Access:
        """A pod begins to use the content: read it from where it is, bring it where it belongs."""
        self.clock.now = at
        found = next((name for name, tier in self.tiers.items() if content in tier), STORE)
        evictions = bypasses = refusals = 0
        for name, tier in reversed(self.tiers.items()):
            if content not in tier and self._may_come(content, name):
                offer = tier.offer(content)
                evictions += len(offer.victims)
                bypasses += offer.reason == BYPASSED
                refusals += offer.reason not in {None, BYPASSED}
                if name == DISK:
                    self._drop_pages(offer.victims)
            tier.attach(content)
        size = content.size_bytes
        return Access(
            found,
            size,
            self._costs[found].seconds(size),
            0.0 if found == self._fastest else self._costs[found].seconds(size),
            evictions,
            bypasses,
            refusals,
        )

    def release(self, content: Content, at: float) -> None:
        """The last pod that used the content is gone."""
        self.clock.now = at
        for tier in self.tiers.values():
            tier.release(content)

    @property
    def used_bytes(self) -> Mapping[str, int]:
        """Bytes held now, by tier."""
        return {name: tier.used_bytes for name, tier in self.tiers.items()}

    @property
    def slab(self) -> Slab | None:
        """The card's memory; None on a node without one."""
        return self.tiers[GPU].slab if GPU in self.tiers else None

    def _may_come(self, content: Content, name: str) -> bool:
        disk = self.tiers.get(DISK)
        return disk is None or name == DISK or content in disk

    def _drop_pages(self, digests: tuple[str, ...]) -> None:
        host = self.tiers.get(HOST)
        for digest in digests:
            if host is not None and host.holds(digest):
                host.drop(digest)
