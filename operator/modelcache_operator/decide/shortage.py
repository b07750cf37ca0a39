"""Why a ModelCache has fewer nodes than it wants: one reason, the arithmetic, the cure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from modelcache_api.names import Reason, Tier
from modelcache_operator.decide.eligibility import Demand, Refusal, describe_room
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.world import NodeName

_MAX_PHRASES: Final = 4
# The first that occurs among the refusals is the reason: the nearest to a solution comes first.
_PRECEDENCE: Final = (
    Reason.WAITING,
    Reason.INSUFFICIENT_SPACE,
    Reason.DISK_PRESSURE,
    Reason.TOO_MANY_MODELS,
    Reason.NEVER_FITS,
    Reason.NODE_LOST,
    Reason.NO_AGENT,
    Reason.NO_ELIGIBLE_NODE,
)
_OF_ROOM: Final = frozenset({Reason.INSUFFICIENT_SPACE, Reason.NEVER_FITS})
_CURES: Final = {
    Reason.WAITING: "it ends by itself when the agents have reported",
    Reason.INSUFFICIENT_SPACE: "free space, delete a ModelCache, lower copies or add nodes",
    Reason.DISK_PRESSURE: "free space on these nodes; copies follow when the pressure is over",
    Reason.TOO_MANY_MODELS: "spread the models over more nodes",
    Reason.NEVER_FITS: "give nodes more capacity, select other nodes or leave files out",
    Reason.NODE_LOST: "check these nodes and their agents' pods",
    Reason.NO_AGENT: "check node selector and tolerations of the agents' DaemonSet",
    Reason.AGENTS_NOT_RUNNING: "check the agents' DaemonSet",
    Reason.NO_ELIGIBLE_NODE: "correct the placement or the nodes",
}
# Where it is a tier above the disk that lacks.
_CURES_OF_TIERS: Final = {
    Reason.INSUFFICIENT_SPACE: "free {tier}, lower copies or spec.tier, or add nodes",
    Reason.NEVER_FITS: "raise {value} in the nodes' profile, or lower spec.tier",
    Reason.NO_ELIGIBLE_NODE: "set {value} in the nodes' profile, or lower spec.tier",
}


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing, in one word and one sentence."""

    reason: Reason
    message: str


def describe_shortage(
    demand: Demand,
    placed: int,
    wanted: int,
    refusals: Mapping[NodeName, Refusal],
    books: Mapping[NodeName, NodeBook],
) -> Shortage:
    """The reason and the sentence; counts of nodes, never their names."""
    reason = _choose_reason(refusals, books)
    total = str(wanted) if wanted else "All"
    place = "a node" if demand.tier is Tier.DISK else f"a node in tier {demand.tier}"
    sentence = f"{placed} of {total} copies have {place}; " + _count_phrases(refusals)
    lacking: dict[Tier, list[NodeBook]] = {}
    for name, why in refusals.items():
        if why.reason is reason:
            lacking.setdefault(why.tier, []).append(books[name])
    for tier in sorted(lacking, key=lambda tier: tier.speed):
        if tier is not Tier.DISK or reason in _OF_ROOM:
            sentence += f"; {describe_room(demand, lacking[tier], tier)}"
    return Shortage(reason, f"{sentence}: {_find_cure(reason, lacking)}")


def _find_cure(reason: Reason, lacking: Iterable[Tier]) -> str:
    """What helps with the fastest tier that lacks."""
    tier = max(lacking, key=lambda tier: tier.speed, default=Tier.DISK)
    cure = _CURES_OF_TIERS.get(reason) if tier is not Tier.DISK else None
    if cure is None:
        return _CURES[reason]
    return cure.format(tier=f"the {tier} tier", value=f"{tier.lower()}.capacity")


def _choose_reason(
    refusals: Mapping[NodeName, Refusal], books: Mapping[NodeName, NodeBook]
) -> Reason:
    found = {refusal.reason for refusal in refusals.values()}
    reason = next((r for r in _PRECEDENCE if r in found), Reason.NO_ELIGIBLE_NODE)
    if reason in {Reason.NO_AGENT, Reason.NODE_LOST}:
        anywhere = any(book.has_live_agent for book in books.values())
        return reason if anywhere else Reason.AGENTS_NOT_RUNNING
    return reason


def _count_phrases(refusals: Mapping[NodeName, Refusal]) -> str:
    if not refusals:
        return "there are no other nodes"
    counted = Counter(refusal.phrase for refusal in refusals.values())
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    phrases = [f"{count} {phrase}" for phrase, count in ordered[:_MAX_PHRASES]]
    if rest := sum(count for _, count in ordered[_MAX_PHRASES:]):
        phrases.append(f"{rest} for other causes")
    return "other nodes: " + ", ".join(phrases)
