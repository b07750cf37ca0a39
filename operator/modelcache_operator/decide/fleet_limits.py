"""What the whole fleet may take from a source and for a namespace: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from modelcache_api.durations import parse_duration
from modelcache_api.quantities import parse_bytes
from modelcache_operator.decide.allowed_sources import is_below

# Slower readers are taken for dead by object stores, and cut off: nobody is given less.
LEAST_RATE: Final = 64 * 1024
# Without renewal a lease ends after so many intervals: a change of leader takes about 20 seconds.
_INTERVALS_OF_LEASE: Final = 4


def _parse_rate(value: object) -> object:
    return parse_bytes(str(value)) if isinstance(value, str | int) else value


def _parse_interval(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


Rate = Annotated[int, BeforeValidator(_parse_rate), Field(ge=LEAST_RATE)]
# A misspelt field would silently bound less than was meant.
_STRICT: Final = ConfigDict(
    alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid"
)


class Bounds(BaseModel):
    """At most so many bytes a second, and so many nodes at the same time; at least one of both."""

    model_config = _STRICT

    max_bandwidth: Rate | None = None
    max_nodes: Annotated[int | None, Field(ge=1)] = None

    @model_validator(mode="after")
    def _bounds_something(self) -> Bounds:
        if self.max_bandwidth is None and self.max_nodes is None:
            raise ValueError("a limit needs maxBandwidth or maxNodes")
        return self


class SourceBounds(Bounds):
    """Bounds of all sources below a prefix."""

    prefix: Annotated[str, Field(min_length=1)]


class FleetLimits(BaseModel):
    """The administrator's limits. Each that covers a version holds; without any nothing is bounded.

    `renew_interval` (seconds): how often nodes that read say so, and learn of their share.
    """

    model_config = _STRICT

    renew_interval: Annotated[int, BeforeValidator(_parse_interval), Field(ge=1, le=300)] = 10
    sources: tuple[SourceBounds, ...] = ()
    namespaces: dict[str, Bounds] = Field(default_factory=dict)

    @property
    def lease_seconds(self) -> float:
        """How long a node may read without renewing."""
        return float(_INTERVALS_OF_LEASE * self.renew_interval)


class ScopeKind(StrEnum):
    """What a limit is for. The value of a metric's label."""

    SOURCE = "source"
    NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True, order=True)
class ScopeName:
    """Which limit: its kind, and the prefix or namespace that it is for."""

    kind: ScopeKind
    name: str

    def __str__(self) -> str:
        return self.name if self.kind is ScopeKind.SOURCE else f"for namespace {self.name}"


@dataclass(frozen=True, slots=True)
class Scope:
    """One limit. None: not bounded."""

    name: ScopeName
    bytes_per_second: int | None = None
    max_nodes: int | None = None

    @property
    def max_transfers(self) -> int | None:
        """How many transfers may read at the same time, so that each can have the least rate."""
        return None if self.bytes_per_second is None else self.bytes_per_second // LEAST_RATE


def parse_fleet_limits(document: object) -> FleetLimits:
    """The limits of a parsed YAML or JSON file; an empty file bounds nothing.

    Raises:
        ValueError: it is no limits, or names one source twice.
    """
    if document is None:
        return FleetLimits()
    limits = FleetLimits.model_validate(document)
    prefixes = [source.prefix for source in limits.sources]
    twice = next((prefix for prefix in prefixes if prefixes.count(prefix) > 1), None)
    if twice is not None:
        raise ValueError(f"sources: {twice!r} has two limits: write one")
    return limits


def list_scopes(limits: FleetLimits) -> Mapping[ScopeName, Scope]:
    """Every limit by its name."""
    named = [(ScopeName(ScopeKind.SOURCE, bounds.prefix), bounds) for bounds in limits.sources]
    scopes: dict[ScopeName, Scope] = {
        name: Scope(name, bounds.max_bandwidth, bounds.max_nodes) for name, bounds in named
    }
    for namespace, bounds in limits.namespaces.items():
        name = ScopeName(ScopeKind.NAMESPACE, namespace)
        scopes[name] = Scope(name, bounds.max_bandwidth, bounds.max_nodes)
    return scopes


def find_scopes(limits: FleetLimits, namespace: str, uri: str) -> tuple[ScopeName, ...]:
    """The limits that a version of this namespace and source is under."""
    found = [
        ScopeName(ScopeKind.SOURCE, source.prefix)
        for source in limits.sources
        if is_below(uri, source.prefix)
    ]
    if namespace in limits.namespaces:
        found.append(ScopeName(ScopeKind.NAMESPACE, namespace))
    return tuple(found)
