"""In which order contents may go. One file per policy; all are pure and deterministic."""

from modelcache_agent.decide.policies.lru import LeastRecentlyUsed
from modelcache_agent.decide.policies.policy import EvictionPolicy

__all__ = ["EvictionPolicy", "LeastRecentlyUsed"]
