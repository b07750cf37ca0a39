"""The operator's metrics, in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from modelcache_api import names
from modelcache_api.names import (
    PATH_CERTIFICATES,
    PATH_FILES,
    PATH_GRANTS,
    PATH_POD_FILES,
    PATH_POD_GRANTS,
    PATH_POD_VERSIONS,
    PATH_PROPOSALS,
    PATH_SLOTS,
    Condition,
    Track,
)
from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_operator import metric_names as named
from modelcache_operator.decide.events import find_condition
from modelcache_operator.decide.quota import Item, read_limits
from modelcache_operator.decide.quota_status import is_refused
from modelcache_operator.decide.rollout import deadline_seconds
from modelcache_operator.decide.warmth import Warmth
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.slots import ScopeUse

_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
_KNOWN_PATHS = frozenset(
    {
        *(PATH_CERTIFICATES, PATH_FILES, PATH_GRANTS, PATH_PROPOSALS, PATH_SLOTS),
        *(PATH_POD_FILES, PATH_POD_GRANTS, PATH_POD_VERSIONS),
    }
)


class OperatorMetrics:
    """Implements `ports.telling.QueueObserver`. Labels are fixed words: never names.

    Series of objects are computed from the watch cache when asked for, so they end with them.
    """

    def __init__(
        self,
        world: ObservedWorld,
        is_leader: Callable[[], bool],
        list_limits: Callable[[], Iterable[ScopeUse]] = tuple,
    ) -> None:
        self.registry = CollectorRegistry()
        self._reconciles = Counter(
            named.RECONCILES, "Runs for a key.", ["kind", "result"], registry=self.registry
        )
        self._seconds = Histogram(
            named.RECONCILE_SECONDS,
            "Duration of a run.",
            ["kind"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._depth = Gauge(
            named.QUEUE_DEPTH,
            "Keys ready or being worked on.",
            ["queue"],
            registry=self.registry,
        )
        self._requests = Counter(
            named.API_REQUESTS,
            "Requests to the API server, kopf's watches apart.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self._events = Counter(
            named.WATCH_EVENTS, "Events of the watches.", ["kind"], registry=self.registry
        )
        self._answers = Counter(
            named.GRANT_ANSWERS,
            "Answers to agents and pods.",
            ["path", "code"],
            registry=self.registry,
        )
        self._placed = Counter(
            named.PODS_PLACED,
            "Pods that name a ModelCache and were bound, by whether their node held its model.",
            ["warmth"],
            registry=self.registry,
        )
        for warmth in Warmth:
            self._placed.labels(warmth.value)
        self._missed = Counter(
            named.MISSED_SOURCE_CHECKS,
            "Looks at sources that were due and never made; one look makes up for them.",
            registry=self.registry,
        )
        leader = Gauge(named.IS_LEADER, "1 while this replica leads.", registry=self.registry)
        leader.set_function(lambda: float(is_leader()))
        self.registry.register(_ObjectCollector(world))
        self.registry.register(_LimitCollector(list_limits))

    def tell_certificates(
        self,
        list_expiries: Callable[[], Mapping[str, datetime]],
        rotation_due_at: Callable[[], datetime | None],
    ) -> None:
        """From now on, when each certificate of this replica ends, by what it is for.

        And when the next authority is to take over.
        """
        self.registry.register(_CertificateCollector(list_expiries, rotation_due_at))

    def watch_queue(self, name: str, read_depth: Callable[[], int]) -> None:
        """From now on, the depth of one more queue, read when it is asked for."""
        self._depth.labels(name).set_function(lambda: float(read_depth()))

    def finished(self, kind: str, result: str, seconds: float) -> None:
        """One run has ended."""
        self._reconciles.labels(kind, result).inc()
        self._seconds.labels(kind).observe(seconds)

    def request(self, verb: str, resource: str, code: int) -> None:
        """One request to the API server has been answered; code 0 if it has not."""
        self._requests.labels(verb, resource, str(code)).inc()

    def watch_event(self, kind: str) -> None:
        """One event of a watch has arrived."""
        self._events.labels(kind).inc()

    def placed(self, warmth: Warmth) -> None:
        """A pod that names a ModelCache was bound to a node."""
        self._placed.labels(warmth.value).inc()

    def missed_source_checks(self, looks: int) -> None:
        """So many periodic looks at a source were due, and are made up for by one."""
        self._missed.inc(looks)

    def grant_answer(self, path: str, code: int) -> None:
        """One answer to an agent or pod. Anybody may ask for any path, so others are one."""
        known = path if path in _KNOWN_PATHS else "other"
        self._answers.labels(known, str(HTTPStatus(code).value)).inc()

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


class _ObjectCollector(Collector):
    def __init__(self, world: ObservedWorld) -> None:
        self._world = world

    def describe(self) -> Sequence[Metric]:
        """Nothing in advance: the registry need not collect to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The state of every object that exists now."""
        yield from self._caches()
        yield from self._rollouts()
        yield from self._quotas()
        yield from self._versions()
        yield self._nodes()
        yield self._unreadable()

    def _caches(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily(
            named.CACHE_READY, "1 if the ModelCache is Ready.", labels=["namespace", "name"]
        )
        said = GaugeMetricFamily(
            named.CACHE_REASON,
            "1 for why the ModelCache is Ready or not.",
            labels=["namespace", "name", "reason"],
        )
        copies = GaugeMetricFamily(
            named.CACHE_COPIES, "Copies by state.", labels=["namespace", "name", "state"]
        )
        for cache in self._world.model_caches():
            labels = [cache.key.namespace, cache.key.name]
            ready.add_metric(labels, _truth(cache.status.conditions))
            _add_reason(said, labels, cache.status.conditions)
            counts = cache.status.copies
            if counts is not None:
                copies.add_metric([*labels, "wanted"], counts.wanted)
                copies.add_metric([*labels, "ready"], counts.ready)
                copies.add_metric([*labels, "failed"], counts.failed)
        yield from (ready, said, copies)

    def _rollouts(self) -> Iterator[Metric]:
        labels = ["namespace", "name"]
        traffic = GaugeMetricFamily(
            named.CACHE_TRAFFIC, "Weight in force, in percent.", labels=[*labels, "track"]
        )
        deadline = GaugeMetricFamily(
            named.CACHE_DEADLINE,
            "When the canary loses its traffic unless it is promoted, in Unix seconds.",
            labels=labels,
        )
        start = GaugeMetricFamily(
            named.CACHE_STARTED,
            "When the canary's time began, in Unix seconds.",
            labels=labels,
        )
        said = GaugeMetricFamily(
            named.CACHE_ROLLOUT, "1 for what is said of the canary.", labels=[*labels, "reason"]
        )
        routed = GaugeMetricFamily(
            named.CACHE_ROUTE, "1 for what is said of the HTTPRoute.", labels=[*labels, "reason"]
        )
        held = GaugeMetricFamily(
            named.CACHE_HELD, "Versions that have left the spec and are held.", labels=labels
        )
        for cache in self._world.model_caches():
            names_, status = [cache.key.namespace, cache.key.name], cache.status
            if status.traffic is not None:
                traffic.add_metric([*names_, Track.STABLE], status.traffic.stable)
                traffic.add_metric([*names_, Track.CANARY], status.traffic.canary)
            if cache.spec.canary is not None and status.rollout and status.rollout.ended is None:
                began = status.rollout.started_at.timestamp()
                start.add_metric(names_, began)
                deadline.add_metric(names_, began + deadline_seconds(cache.spec))
            found = find_condition(status.conditions, Condition.ROLLOUT_PROGRESSING)
            if found is not None:
                said.add_metric([*names_, found.reason], 1.0)
            found = find_condition(status.conditions, Condition.TRAFFIC_ROUTED)
            if found is not None:
                routed.add_metric([*names_, found.reason], 1.0)
            if status.held:
                held.add_metric(names_, len(status.held))
        yield from (traffic, start, deadline, said, routed, held)

    def _quotas(self) -> Iterator[Metric]:
        labels = ["namespace", "name"]
        exceeded = GaugeMetricFamily(
            named.CACHE_REFUSED, "1 if a quota keeps it from copies or a canary.", labels=labels
        )
        used = GaugeMetricFamily(
            named.QUOTA_USED, "What the namespace is charged.", labels=[*labels, "item"]
        )
        hard = GaugeMetricFamily(named.QUOTA_HARD, "What is granted.", labels=[*labels, "item"])
        refused = GaugeMetricFamily(
            named.QUOTA_REFUSED, "ModelCaches that get too little by it.", labels=labels
        )
        for cache in self._world.model_caches():
            exceeded.add_metric([cache.key.namespace, cache.key.name], float(is_refused(cache)))
        for quota in self._world.quotas():
            names_, usage = [quota.key.namespace, quota.key.name], quota.status.used
            for item, amount in read_limits(quota.spec, quota.key.name).hard.items():
                hard.add_metric([*names_, item.value], amount)
            for item in Item if usage is not None else ():
                used.add_metric([*names_, item.value], getattr(usage, f"{item.value}_bytes"))
            refused.add_metric(names_, quota.status.refused)
        yield from (exceeded, used, hard, refused)

    def _versions(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily(
            named.VERSION_READY, "1 if the ModelVersion is resolved.", labels=["namespace", "name"]
        )
        said = GaugeMetricFamily(
            named.VERSION_REASON,
            "1 for why the ModelVersion is Ready or not.",
            labels=["namespace", "name", "reason"],
        )
        source = GaugeMetricFamily(
            named.VERSION_SOURCE,
            "1 for what the ModelVersion's source was found to be: Resolved, SourceChanged, ...",
            labels=["namespace", "name", "reason"],
        )
        for version in self._world.model_versions():
            labels = [version.key.namespace, version.key.name]
            ready.add_metric(labels, _truth(version.status.conditions))
            _add_reason(said, labels, version.status.conditions)
            found = find_condition(version.status.conditions, Condition.SOURCE_CURRENT)
            if found is not None:
                source.add_metric([*labels, found.reason], 1.0)
        yield from (ready, said, source)

    def _nodes(self) -> Metric:
        ready = GaugeMetricFamily(named.NODE_READY, "1 if the agent is alive.", labels=["node"])
        for node in self._world.cache_nodes():
            ready.add_metric([node.name], _truth(node.status.conditions))
        return ready

    def _unreadable(self) -> Metric:
        count = GaugeMetricFamily(
            named.UNREADABLE,
            "Objects of a newer release, which are left alone.",
            labels=["kind"],
        )
        there = self._world.unreadable
        for kind, number in (
            (names.PLURAL_MODEL_VERSION, len(there.versions)),
            (names.PLURAL_MODEL_CACHE, len(there.caches)),
            (names.PLURAL_CACHE_NODE, len(there.cache_nodes)),
            (names.PLURAL_MODEL_CACHE_QUOTA, len(there.quotas)),
            ("nodes", len(there.nodes)),
        ):
            count.add_metric([kind], number)
        return count


class _LimitCollector(Collector):
    """Of the leader alone, and of the limits that are set alone."""

    def __init__(self, list_limits: Callable[[], Iterable[ScopeUse]]) -> None:
        self._list_limits = list_limits

    def describe(self) -> Sequence[Metric]:
        """Nothing in advance, as above."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """How each limit is used now."""
        labels = ["limit", "name"]
        readers = GaugeMetricFamily(
            named.LIMIT_READERS, "Nodes that may read under the limit.", labels=labels
        )
        waiting = GaugeMetricFamily(
            named.LIMIT_WAITING, "Transfers that wait for a slot.", labels=labels
        )
        rate = GaugeMetricFamily(
            named.LIMIT_RATE, "Bytes a second that are handed out.", labels=labels
        )
        for use in self._list_limits():
            values = [use.name.kind.value, use.name.name]
            readers.add_metric(values, use.readers)
            waiting.add_metric(values, use.waiting)
            rate.add_metric(values, use.bytes_per_second)
        yield from (readers, waiting, rate)


class _CertificateCollector(Collector):
    """Of every replica: each serves with a certificate of its own."""

    def __init__(
        self,
        list_expiries: Callable[[], Mapping[str, datetime]],
        rotation_due_at: Callable[[], datetime | None],
    ) -> None:
        self._list_expiries = list_expiries
        self._rotation_due_at = rotation_due_at

    def describe(self) -> Sequence[Metric]:
        """Nothing in advance, as above."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """When each certificate ends, and when the authority should be another."""
        expiry = GaugeMetricFamily(
            named.CERTIFICATE_EXPIRY,
            "When the certificate ends, in Unix seconds.",
            labels=["certificate"],
        )
        for what, ends in self._list_expiries().items():
            expiry.add_metric([what], ends.timestamp())
        rotation = GaugeMetricFamily(
            named.AUTHORITY_ROTATION,
            "When the next authority should sign, in Unix seconds; past if rotation fails.",
        )
        if (due_at := self._rotation_due_at()) is not None:
            rotation.add_metric([], due_at.timestamp())
        yield from (expiry, rotation)


def _add_reason(
    family: GaugeMetricFamily, labels: Sequence[str], conditions: Sequence[ConditionStatus]
) -> None:
    if (ready := find_condition(conditions)) is not None:
        family.add_metric([*labels, ready.reason], 1.0)


def _truth(conditions: Sequence[ConditionStatus]) -> float:
    ready = find_condition(conditions)
    return float(ready is not None and ready.status == "True")
