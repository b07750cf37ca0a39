"""Metrics, computed when they are asked for: what is gone leaves no series behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from modelcache_agent.adapters.measures import Measures
from modelcache_agent.decide.actions import EntryView
from modelcache_agent.decide.charges import Charges
from modelcache_agent.decide.gpu.world import GpuView
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.fetch import FetchCounters
from modelcache_agent.socket.counters import SocketCounters
from modelcache_api.names import METRIC_PREFIX_AGENT, EntryState, Reason, Tier

_FETCH_COUNTERS: Final = (
    ("requests", "Requests to object stores."),
    ("network_bytes", "Body bytes received, from object stores and other nodes."),
    ("peer_bytes", "Body bytes received from other nodes."),
    ("refetched_bytes", "Body bytes thrown away or fetched again."),
    ("verified_bytes", "Bytes that passed every check."),
    ("proved_bytes", "Bytes read back from disk to resume a transfer."),
    ("connections", "Connections opened to object stores."),
    ("refreshed_grants", "Signed URLs that were renewed."),
)
# Alerts and the dashboard ask for their increase, which does not see a series begin.
_ASKED_RETRIES: Final = (
    Reason.THROTTLED,
    Reason.TRANSFER_FAILED,
    Reason.TRANSFER_STALLED,
    Reason.ENDPOINT_UNREACHABLE,
)
_ASKED_FAILURES: Final = (Reason.DIGEST_MISMATCH, *_ASKED_RETRIES)


class PrometheusMetrics(Measures):
    """The port, and the collector of its own registry.

    Labels are fixed words, but for namespaces and servers of versions that are wanted here.
    """

    def __init__(
        self,
        fetch_counters: Callable[[], FetchCounters],
        keep_egress: Callable[[frozenset[str], frozenset[str]], None] = lambda _uids, _loading: (
            None
        ),
        peer_answers: Callable[[], Mapping[str, int]] = dict,
        peer_sent_bytes: Callable[[], int] = int,
        sockets: Callable[[], SocketCounters] = SocketCounters,
        certificate_expires_at: Callable[[], float | None] = lambda: None,
        api_requests: Callable[[], Mapping[tuple[str, ...], int]] = dict,
    ) -> None:
        self.registry = CollectorRegistry()
        super().__init__(self.registry)
        self._sockets = sockets
        self._certificate_expires_at = certificate_expires_at
        self._api_requests = api_requests
        self._fetch_counters = fetch_counters
        self._keep_egress = keep_egress
        self._peer_answers = peer_answers
        self._peer_sent_bytes = peer_sent_bytes
        self._views: tuple[EntryView, ...] = ()
        self._ledger: Ledger | None = None
        self._host_ledger: Ledger | None = None
        self._charges = Charges()
        self._gpu: GpuView | None = None
        self._free_bytes = 0
        self._labels = 0
        self._is_pressed = False
        self._failures: Counter[str] = Counter(dict.fromkeys(_ASKED_FAILURES, 0))
        self._writes: Counter[tuple[str, ...]] = Counter()
        self._scrubbed_bytes = 0
        self._damaged_pieces = 0
        self._errors = 0
        self.registry.register(self)

    def observe(
        self, views: tuple[EntryView, ...], ledger: Ledger, free_bytes: int, labels: int
    ) -> None:
        """The state after one turn of the loop."""
        self._keep_egress(
            frozenset(view.uid for view in views),
            frozenset(view.uid for view in views if view.is_loading),
        )
        self._views = views
        self._ledger = ledger
        self._free_bytes = free_bytes
        self._labels = labels

    def note_pressure(self, *, is_pressed: bool) -> None:
        """Whether the store's file system is above its watermarks."""
        self._is_pressed = is_pressed

    def observe_host(self, ledger: Ledger | None) -> None:
        """The book of locked memory after one turn; None: the tier is off."""
        self._host_ledger = ledger

    def observe_charges(self, charges: Charges) -> None:
        """What namespaces are charged, and what is pinned, after one turn."""
        self._charges = charges

    def observe_gpu(self, gpu: GpuView | None) -> None:
        """What is seen of GPU memory after one turn; None: the tier is off."""
        self._gpu = gpu

    def count_failure(self, reason: Reason) -> None:
        """A transfer or proposal failed."""
        self._failures[reason] += 1

    def count_scrubbed(self, size_bytes: int) -> None:
        """Bytes of published files were read again."""
        self._scrubbed_bytes += size_bytes

    def count_damaged(self, pieces: int) -> None:
        """So many pieces of a published file are not what they were."""
        self._damaged_pieces += pieces

    def count_write(self, target: str, *, succeeded: bool) -> None:
        """A request to the API server that writes."""
        self._writes[(target, "ok" if succeeded else "failed")] += 1

    def count_error(self) -> None:
        """A turn of the loop failed."""
        self._errors += 1

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """All series of this moment."""
        yield from self._collect_disk()
        yield from self._collect_host()
        yield self._collect_charges()
        yield from self._collect_gpu()
        states = Counter(view.state for view in self._views)
        entries = _gauge("entries", "Entries of the CacheNode by state.", "state")
        for state in EntryState:
            entries.add_metric([state], states[state])
        yield entries
        reasons = Counter(view.reason for view in self._views)
        by_reason = _gauge("entry_reasons", "Entries of the CacheNode by reason.", "reason")
        for reason in sorted(reasons):
            by_reason.add_metric([reason], reasons[reason])
        yield by_reason
        labels = _gauge("node_labels", "Labels of ours on the Node.")
        labels.add_metric([], self._labels)
        yield labels
        yield from self._collect_certificate()
        yield from self._collect_counters()

    def _collect_certificate(self) -> Iterator[Metric]:
        expires_at = self._certificate_expires_at()
        if expires_at is None:
            return
        expiry = _gauge(
            "certificate_expiry_timestamp_seconds",
            "When the certificate that is shown to other nodes ends, in Unix seconds.",
        )
        expiry.add_metric([], expires_at)
        yield expiry

    def _collect_disk(self) -> Iterator[Metric]:
        if self._ledger is None:
            return
        disk = _gauge("disk_bytes", "The book of the disk.", "kind")
        book = self._ledger
        for kind, size in (
            ("capacity", book.capacity_bytes),
            ("used", book.used_bytes),
            ("reserved", book.reserved_bytes),
            ("pending_release", book.pending_release_bytes),
            ("quarantined", book.quarantined_bytes),
            ("free", self._free_bytes),
            ("pinned", self._charges.pinned.get(Tier.DISK, 0)),
        ):
            disk.add_metric([kind], size)
        yield disk
        pressure = _gauge("disk_pressure", "1 while the file system is above its watermarks.")
        pressure.add_metric([], int(self._is_pressed))
        yield pressure

    def _collect_host(self) -> Iterator[Metric]:
        if self._host_ledger is None:
            return
        host = _gauge("host_bytes", "The book of locked host memory.", "kind")
        book = self._host_ledger
        for kind, size in (
            ("capacity", book.capacity_bytes),
            ("used", book.used_bytes),
            ("reserved", book.reserved_bytes),
            ("lingering", book.pending_release_bytes),
            ("pinned", self._charges.pinned.get(Tier.HOST, 0)),
        ):
            host.add_metric([kind], size)
        yield host

    def _collect_charges(self) -> Metric:
        # Not `namespace`, as below.
        charged = _gauge(
            "namespace_bytes", "What each namespace is charged.", "model_namespace", "tier"
        )
        for namespace, tiers in self._charges.namespaces.items():
            for tier, size in tiers.items():
                charged.add_metric([namespace, tier.label_value], size)
        return charged

    def _collect_gpu(self) -> Iterator[Metric]:
        gpu = self._gpu
        if gpu is None:
            return
        card = _gauge("gpu_bytes", "The book of GPU memory; experimental.", "kind")
        for kind, size in (
            ("capacity", gpu.budget.capacity_bytes),
            ("used", gpu.held_bytes),
            ("reserved", sum(gpu.loading.values())),
            ("lingering", gpu.lingering_bytes),
            ("pinned", self._charges.pinned.get(Tier.GPU, 0)),
            ("foreign", gpu.budget.foreign_bytes),
        ):
            card.add_metric([kind], size)
        yield card
        pieces = _gauge(
            "gpu_fragmentation_ratio",
            "Share of free GPU memory outside of its largest piece; none where cards map pages.",
        )
        if gpu.budget.fragmentation is not None:
            pieces.add_metric([], gpu.budget.fragmentation)
        yield pieces
        usable = _gauge("gpu_available", "1 while the card, or what emulates it, can be used.")
        usable.add_metric([], int(gpu.why_off is None))
        yield usable

    def _collect_counters(self) -> Iterator[Metric]:
        yield _total("scrubbed_bytes", "Bytes of files that were read again.", self._scrubbed_bytes)
        yield _total(
            "damaged_pieces", "Pieces of files found damaged on the disk.", self._damaged_pieces
        )
        yield _total("loop_errors", "Turns of the loop that failed.", self._errors)
        failures: dict[tuple[str, ...], int] = {
            (str(reason),): count for reason, count in self._failures.items()
        }
        yield _count(
            "failures", "Failed transfers, proposals and actions on the store.", failures, "reason"
        )
        yield _count("api_writes", "Writes to the API server.", self._writes, "target", "outcome")
        yield _count(
            "api_requests",
            "Requests to the API server.",
            self._api_requests(),
            *("verb", "resource", "code"),
        )
        fetched = self._fetch_counters()
        for name, text in _FETCH_COUNTERS:
            yield _total(f"fetch_{name}", text, getattr(fetched, name))
        retries: dict[tuple[str, ...], int] = {(str(reason),): 0 for reason in _ASKED_RETRIES}
        retries |= {(str(reason),): count for reason, count in fetched.retries.items()}
        yield _count("fetch_retries", "Retried requests.", retries, "reason")
        egress: dict[tuple[str, ...], int] = dict(fetched.egress.items())
        # Not `namespace`: that is the agent's own, which Prometheus adds to each series.
        yield _count(
            "fetch_egress_bytes",
            "Body bytes received, by namespace of the ModelCache and server they came from.",
            egress,
            "model_namespace",
            "source",
        )
        answers: dict[tuple[str, ...], int] = {
            (str(answer),): count for answer, count in self._peer_answers().items()
        }
        yield _count("peer_answers", "What came of asking other nodes.", answers, "answer")
        yield _total("peer_sent_bytes", "Body bytes sent to other nodes.", self._peer_sent_bytes())
        yield from _collect_sockets(self._sockets())


def _collect_sockets(found: SocketCounters) -> Iterator[Metric]:
    connections = _gauge("socket_connections", "Processes of pods on their volumes' sockets.")
    connections.add_metric([], found.connections)
    yield connections
    attached = _gauge("socket_attached", "Those of them that hold versions, or may do so.")
    attached.add_metric([], found.attached)
    yield attached
    index = _gauge("socket_index_bytes", "Memory of the indexes that are kept for them.")
    index.add_metric([], found.index_bytes)
    yield index
    yield _total("socket_accepted", "Connections of processes of pods.", found.accepted)
    yield _total("socket_demands", "Times that a process wanted its model now.", found.demands)
    yield _total("socket_indexes", "Indexes that were made.", found.indexes)
    yield _total("socket_devices", "Times that a process was given GPU memory.", found.devices)
    refusals: dict[tuple[str, ...], int] = {
        (str(reason),): count for reason, count in found.refusals.items()
    }
    yield _count("socket_refusals", "What sockets refused.", refusals, "reason")


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{METRIC_PREFIX_AGENT}{name}", text, labels=labels)


def _count(
    name: str, text: str, values: Mapping[tuple[str, ...], int], *labels: str
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{METRIC_PREFIX_AGENT}{name}", text, labels=labels)
    for words, value in sorted(values.items()):
        family.add_metric(list(words), value)
    return family


def _total(name: str, text: str, value: int) -> CounterMetricFamily:
    return _count(name, text, {(): value})
