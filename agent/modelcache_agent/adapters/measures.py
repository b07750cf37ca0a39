"""Counters and histograms of loads, attaches and evictions. Labels are fixed words."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from modelcache_agent.decide.measures import Attach, EvictionCause, LoadSource
from modelcache_api.names import METRIC_PREFIX_AGENT, Tier

# From a small model beside the store to a large one over a slow link.
_LOAD_SECONDS: Final = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
# From what is there to what has to be fetched first.
_ATTACH_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300, 1800)
_LABEL_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120, 600)
# From ten minutes to thirty days.
_AGE_SECONDS: Final = (600, 3600, 6 * 3600, 86_400, 3 * 86_400, 7 * 86_400, 30 * 86_400)
_HIT: Final = "hit"
_MISS: Final = "miss"


class Measures:
    """Part of the port. One event loop uses it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def count(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{METRIC_PREFIX_AGENT}{name}", text, labels, registry=registry)

        def time(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            full_name = f"{METRIC_PREFIX_AGENT}{name}"
            return Histogram(full_name, text, labels, buckets=buckets, registry=registry)

        self._attaches = count(
            "attaches",
            "Volumes that began to show a model, for each tier that it is wanted in: a hit if the "
            "tier held it when the pod asked.",
            *("tier", "result"),
        )
        self._attached_bytes = count(
            "attached_bytes", "Sizes of the models, by the same rule.", "tier", "result"
        )
        self._saved = count(
            "saved_seconds",
            "Load time that hits on the disk have spared pods, by the measured cost of each model.",
        )
        self._attach_seconds = time(
            "attach_seconds",
            "From when the kubelet asked for a volume until it shows its model.",
            _ATTACH_SECONDS,
            "result",
        )
        self._load_seconds = time(
            "load_seconds",
            "From the first try to bring a model into a tier until it is verified there.",
            _LOAD_SECONDS,
            *("tier", "source"),
        )
        self._label_seconds = time(
            "label_seconds",
            "From the publication of verified bytes until the Node's label is acknowledged.",
            _LABEL_SECONDS,
        )
        self._evictions = count("evictions", "Contents that gave way.", "tier", "reason")
        self._eviction_age = time(
            "eviction_age_seconds",
            "Since the content had come to this node when it gave way.",
            _AGE_SECONDS,
            "tier",
        )
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """A series that begins with its first event hides that event from `increase`."""
        for result in (_HIT, _MISS):
            self._attach_seconds.labels(result)
        for source in LoadSource:
            tiers = (Tier.HOST, Tier.GPU) if source is LoadSource.DISK else (Tier.DISK,)
            for tier in tiers:
                self._load_seconds.labels(tier.label_value, source.value)
        for tier in Tier:
            self._eviction_age.labels(tier.label_value)
            for result in (_HIT, _MISS):
                self._attaches.labels(tier.label_value, result)
                self._attached_bytes.labels(tier.label_value, result)
            for cause in EvictionCause:
                self._evictions.labels(tier.label_value, cause.value)

    def count_attach(self, attach: Attach) -> None:
        """A pod's volume shows its content from now on."""
        for tier, was_found in attach.list_tiers():
            labels = (tier.label_value, _HIT if was_found else _MISS)
            self._attaches.labels(*labels).inc()
            self._attached_bytes.labels(*labels).inc(attach.size_bytes)
        self._saved.inc(attach.saved_seconds)
        self._attach_seconds.labels(_HIT if attach.is_hit else _MISS).observe(attach.seconds)

    def count_load(self, tier: Tier, source: LoadSource, seconds: float) -> None:
        """A content was brought into a tier."""
        self._load_seconds.labels(tier.label_value, source.value).observe(seconds)

    def count_labelled(self, seconds: float) -> None:
        """So long after its publication a content's label is on the Node."""
        self._label_seconds.observe(seconds)

    def count_eviction(self, tier: Tier, cause: EvictionCause, age_seconds: float) -> None:
        """A content gave way in a tier, so long after it had come to this node."""
        self._evictions.labels(tier.label_value, cause.value).inc()
        self._eviction_age.labels(tier.label_value).observe(age_seconds)
