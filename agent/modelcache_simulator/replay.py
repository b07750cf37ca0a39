"""One run: a trace through a simulated node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from modelcache_agent.decide.history import LoadCost
from modelcache_agent.decide.policies import EvictionPolicy
from modelcache_simulator.belady import Belady
from modelcache_simulator.contents import Content, make_content
from modelcache_simulator.errors import SimulationError
from modelcache_simulator.node import SimulatedNode
from modelcache_simulator.sessions import Attach, Event
from modelcache_simulator.tally import Tally


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Capacities by tier (bytes), sizes by model, and what reading costs.

    Only attaches from `counts_from` to `counts_to` (Unix seconds) are counted; those before warm
    the tiers up, those after are not played.
    """

    capacities: Mapping[str, int]
    sizes: Mapping[str, int]
    costs: Mapping[str, LoadCost]
    protects_attached: bool = True
    counts_from: float = -inf
    counts_to: float = inf


def replay(events: Iterable[Event], plan: NodePlan, policy: EvictionPolicy) -> Tally:
    """Play the events on an empty node.

    Raises:
        SimulationError: a model of the trace has no size.
    """
    node = SimulatedNode(
        plan.capacities, policy, plan.costs, protects_attached=plan.protects_attached
    )
    contents = {model: make_content(model, size) for model, size in plan.sizes.items()}
    tally = Tally(tuple(node.tiers))
    for event in events:
        if event.at > plan.counts_to:
            break
        content = _find(contents, event.model)
        if not isinstance(event, Attach):
            node.release(content, event.at)
            continue
        if isinstance(policy, Belady):
            policy.note_attach(content.digest)
        access = node.attach(content, event.at)
        if event.at >= plan.counts_from:
            tally.note(event.at, access, node.used_bytes)
            if node.slab is not None:
                tally.note_slab(event.at, node.slab)
    return tally


def _find(contents: Mapping[str, Content], model: str) -> Content:
    try:
        return contents[model]
    except KeyError:
        raise SimulationError(
            f"the model {model!r} of the trace has no size in the catalogue: add it, or let sizes "
            "be drawn"
        ) from None
