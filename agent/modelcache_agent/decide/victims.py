"""Which contents give way. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.ledger import Ledger
    from modelcache_agent.decide.policies import EvictionPolicy
    from modelcache_agent.decide.world import Held


def choose_victims(
    candidates: Iterable[Held],
    needed_bytes: int,
    *,
    ledger: Ledger,
    leaving: frozenset[str],
    condemned: frozenset[str],
    policy: EvictionPolicy,
) -> frozenset[str] | None:
    """Whom to evict to free `needed_bytes` beyond what `leaving` frees; None: it is too little.

    Former victims come first, then the policy's order. Victims that turn out redundant are spared,
    the most valuable first. Nobody is chosen when all together would not do.
    """
    base = ledger.freed_bytes(leaving)
    ordered = policy.order(candidates)
    ordered = tuple(sorted(ordered, key=lambda held: held.digest not in condemned))
    chosen: list[str] = []

    def frees_enough(victims: Iterable[str]) -> bool:
        return ledger.freed_bytes(leaving.union(victims)) - base >= needed_bytes

    for held in ordered:
        if frees_enough(chosen):
            break
        chosen.append(held.digest)
    if not frees_enough(chosen):
        return None
    for digest in reversed(chosen.copy()):
        fewer = [other for other in chosen if other != digest]
        if frees_enough(fewer):
            chosen = fewer
    return frozenset(chosen)
