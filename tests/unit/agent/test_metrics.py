"""Series describe what is there."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from modelcache_agent.adapters.prometheus import PrometheusMetrics
from modelcache_agent.decide.actions import EntryView
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.fetch import FetchCounters
from modelcache_agent.fetch.egress import EgressBook
from modelcache_api.names import EntryState, Reason


def scrape(metrics) -> dict:
    samples = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def test_the_book_and_the_entries():
    metrics = PrometheusMetrics(FetchCounters)
    view = EntryView("uid-1", EntryState.FAILED, Reason.NOT_A_MODEL, "it is an HTML page")
    metrics.observe((view,), Ledger(100, quarantined_bytes=7), 55, 3)
    metrics.count_failure(Reason.NOT_A_MODEL)
    metrics.count_write("labels", succeeded=True)
    metrics.count_scrubbed(9)
    metrics.count_damaged(2)
    samples = scrape(metrics)
    assert samples["modelcache_agent_disk_bytes", (("kind", "free"),)] == 55
    assert samples["modelcache_agent_entries", (("state", "Failed"),)] == 1
    assert samples["modelcache_agent_entry_reasons", (("reason", "NotAModel"),)] == 1
    assert samples["modelcache_agent_node_labels", ()] == 3
    assert samples["modelcache_agent_scrubbed_bytes_total", ()] == 9
    assert samples["modelcache_agent_damaged_pieces_total", ()] == 2
    assert samples["modelcache_agent_failures_total", (("reason", "NotAModel"),)] == 1
    assert (
        samples["modelcache_agent_api_writes_total", (("outcome", "ok"), ("target", "labels"))] == 1
    )


def test_what_alerts_ask_the_increase_of_begins_at_zero():
    samples = scrape(PrometheusMetrics(FetchCounters))
    for name in ("fetch_retries", "failures"):
        for reason in ("Throttled", "TransferStalled", "TransferFailed", "EndpointUnreachable"):
            assert samples[f"modelcache_agent_{name}_total", (("reason", reason),)] == 0
    counters = FetchCounters(retries={Reason.THROTTLED: 3})
    samples = scrape(PrometheusMetrics(lambda: counters))
    assert samples["modelcache_agent_fetch_retries_total", (("reason", "Throttled"),)] == 3


def test_the_book_of_host_memory_is_there_while_the_tier_is_on():
    metrics = PrometheusMetrics(FetchCounters)
    assert not any("host_bytes" in name for name, _ in scrape(metrics))
    metrics.observe_host(Ledger(100, reservations={"v1": 30}, pending_release_bytes=7))
    samples = scrape(metrics)
    kinds = {"capacity": 100, "used": 0, "reserved": 30, "lingering": 7}
    for kind, size in kinds.items():
        assert samples["modelcache_agent_host_bytes", (("kind", kind),)] == size


def test_C44_series_of_what_is_gone_vanish_and_no_label_is_free_text():
    metrics = PrometheusMetrics(FetchCounters)
    metrics.observe((), Ledger(100), 0, 0)
    base = len(scrape(metrics))
    for number in range(50):
        reason = list(Reason)[number % len(Reason)]
        view = EntryView(f"uid-{number}", EntryState.FAILED, reason, f"text {number}")
        metrics.observe((view,), Ledger(100), 0, 0)
        assert len(scrape(metrics)) == base + 1
    metrics.observe((), Ledger(100), 0, 0)
    samples = scrape(metrics)
    assert len(samples) == base
    words = {value for _name, labels in samples for _key, value in labels}
    assert not any(word.startswith(("uid-", "text")) for word in words)


def test_C44_bytes_are_counted_by_namespace_and_source_while_the_entry_is_there():
    book = EgressBook()
    book.add("uid-1", "team", "https://s3.example", 7)
    metrics = PrometheusMetrics(lambda: FetchCounters(egress=book.snapshot()), book.keep)
    view = EntryView("uid-1", EntryState.CACHED, Reason.CACHED)
    metrics.observe((view,), Ledger(100), 0, 0)
    series = (
        "modelcache_agent_fetch_egress_bytes_total",
        (("model_namespace", "team"), ("source", "https://s3.example")),
    )
    assert scrape(metrics)[series] == 7
    metrics.observe((), Ledger(100), 0, 0)
    assert series not in scrape(metrics)
