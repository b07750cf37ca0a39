"""The one ranged-HTTP engine: a job's files, verified piece by piece, into a partial folder."""

from modelcache_agent.fetch.config import FetchConfig
from modelcache_agent.fetch.counters import FetchCounters
from modelcache_agent.fetch.engine import FetchEngine
from modelcache_agent.fetch.job import (
    FetchCancelledError,
    FetchedFile,
    FetchFailure,
    FetchFile,
    FetchJob,
    FetchOutcome,
    GrantProvider,
    GrantUnavailableError,
    Progress,
)
from modelcache_agent.fetch.source_gate import SourceGate

__all__ = [
    "FetchCancelledError",
    "FetchConfig",
    "FetchCounters",
    "FetchEngine",
    "FetchFailure",
    "FetchFile",
    "FetchJob",
    "FetchOutcome",
    "FetchedFile",
    "GrantProvider",
    "GrantUnavailableError",
    "Progress",
    "SourceGate",
]
