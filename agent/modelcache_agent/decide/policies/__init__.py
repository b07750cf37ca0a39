"""In which order contents may go. One file per policy; all are pure and deterministic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.policies.fifo import FirstInFirstOut
from modelcache_agent.decide.policies.gdsf import GreedyDualSizeFrequency
from modelcache_agent.decide.policies.lfu import LeastFrequentlyUsed
from modelcache_agent.decide.policies.lrfu import RecencyAndFrequency
from modelcache_agent.decide.policies.lru import LeastRecentlyUsed
from modelcache_agent.decide.policies.policy import EvictionPolicy, Ranked
from modelcache_agent.decide.policies.value import LeastValue

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["POLICIES", "EvictionPolicy", "LeastRecentlyUsed", "Ranked", "find_policy"]

_ALL: Final[tuple[EvictionPolicy, ...]] = (
    LeastRecentlyUsed(),
    LeastFrequentlyUsed(),
    FirstInFirstOut(),
    RecencyAndFrequency(),
    GreedyDualSizeFrequency(),
    LeastValue(),
)
POLICIES: Final[Mapping[str, EvictionPolicy]] = {policy.name: policy for policy in _ALL}


def find_policy(name: str) -> EvictionPolicy:
    """The policy of that name. Raises ValueError with the cure."""
    policy = POLICIES.get(name)
    if policy is not None:
        return policy
    choices = ", ".join(POLICIES)
    if name == "random":
        message = (
            "'random' is no policy: what it evicts can neither be reproduced nor explained; "
            f"take one of {choices}"
        )
        raise ValueError(message)
    message = f"{name!r} is not one of {choices}"
    raise ValueError(message)
