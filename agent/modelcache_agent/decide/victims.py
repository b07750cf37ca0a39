"""Which contents give way. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modelcache_agent.decide.ledger import Ledger
    from modelcache_agent.decide.policies import EvictionPolicy, Ranked
    from modelcache_agent.decide.world import Held


def choose_victims(  # noqa: PLR0913 - the plan so far, and what orders the candidates
    candidates: Iterable[Held],
    needed_bytes: int,
    *,
    ledger: Ledger,
    leaving: frozenset[str],
    condemned: frozenset[str],
    policy: EvictionPolicy,
    fresh: frozenset[str] = frozenset(),
    standing: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Ranked, ...] | None:
    """Whom to evict to free `needed_bytes` beyond what `leaving` frees; None: it is too little.

    Former victims come first, then those of the lowest `standing`, then the policy's order; those
    of `fresh` last among their equals, in that order too.
    Victims that turn out redundant are spared, the most valuable first. Nobody is chosen when all
    together would not do.
    """
    base = ledger.freed_bytes(leaving)
    ordered = sorted(
        policy.rank(candidates),
        key=lambda r: (
            r.held.digest not in condemned,
            standing.get(r.held.digest, 0),
            r.held.digest in fresh,
        ),
    )
    chosen: list[Ranked] = []

    def frees_enough(victims: Sequence[Ranked]) -> bool:
        digests = leaving.union(victim.held.digest for victim in victims)
        return ledger.freed_bytes(digests) - base >= needed_bytes

    for ranked in ordered:
        if frees_enough(chosen):
            break
        chosen.append(ranked)
    if not frees_enough(chosen):
        return None
    for victim in reversed(chosen.copy()):
        fewer = [other for other in chosen if other is not victim]
        if frees_enough(fewer):
            chosen = fewer
    return tuple(chosen)
