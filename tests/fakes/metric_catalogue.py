"""Every series that operator and agent can tell, with its labels, and what an expression names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from modelcache_agent.adapters.prometheus import PrometheusMetrics
from modelcache_agent.decide.gpu.world import GpuView
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.fetch import FetchCounters
from modelcache_operator.adapters.metrics import OperatorMetrics
from modelcache_operator.adapters.watch_cache import WatchCache

_NAME = re.compile(r"\bmodelcache_[a-z_]+")
_SELECTOR = re.compile(r"\b(modelcache_[a-z_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
# Given by Prometheus, or by the relabelling of the PodMonitor.
TARGET_LABELS = frozenset({"node", "instance"})


@dataclass(frozen=True, slots=True)
class Family:
    """One metric as its text format names it: without `_total`, `_bucket` and the like."""

    name: str
    kind: str
    text: str
    labels: frozenset[str]

    def list_series(self) -> Iterator[tuple[str, frozenset[str]]]:
        """Names and labels of what Prometheus stores of it."""
        match self.kind:
            case "counter":
                yield f"{self.name}_total", self.labels
            case "histogram":
                yield f"{self.name}_bucket", self.labels | {"le"}
                yield f"{self.name}_sum", self.labels
                yield f"{self.name}_count", self.labels
            case _:
                yield self.name, self.labels


def list_families() -> dict[str, Family]:
    """All of both programs, with every tier on."""
    agent = PrometheusMetrics(FetchCounters, certificate_expires_at=lambda: 0.0)
    agent.observe((), Ledger(1), 0, 0)
    agent.observe_host(Ledger(1))
    agent.observe_gpu(GpuView())
    operator = OperatorMetrics(WatchCache(), lambda: True)
    operator.tell_certificates(dict, lambda: None)
    return {
        family.name: family
        for registry in (operator.registry, agent.registry)
        for family in _families_of(registry)
    }


def list_series() -> dict[str, frozenset[str]]:
    """Labels of every series by its name."""
    return dict(pair for family in list_families().values() for pair in family.list_series())


def names_in(expression: str) -> set[str]:
    """The series that an expression reads."""
    return set(_NAME.findall(expression))


def selectors_in(expression: str) -> Iterator[tuple[str, str, str, str]]:
    """Series, label, operator and value of every matcher."""
    for name, matchers in _SELECTOR.findall(expression):
        for label, operator, value in _MATCHER.findall(matchers):
            yield name, label, operator, value


def groupings_in(expression: str) -> set[str]:
    """Labels that results are grouped or joined by."""
    lists = _GROUPING.findall(expression)
    return {label.strip() for labels in lists for label in labels.split(",") if label.strip()}


def _families_of(registry: CollectorRegistry) -> Iterator[Family]:
    # The client tells labels nowhere else.
    wrapped: Mapping[str, Any] = {
        collector._name: collector
        for collector in registry._collector_to_names
        if isinstance(collector, MetricWrapperBase)
    }
    for metric in registry.collect():
        if metric.name.endswith("_created"):
            continue
        source = wrapped.get(metric.name, metric)
        labels = getattr(source, "_labelnames", ())
        yield Family(metric.name, metric.type, metric.documentation, frozenset(labels))
