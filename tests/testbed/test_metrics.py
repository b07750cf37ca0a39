from __future__ import annotations

from modelcache_testbed.metrics import parse_metrics

TEXT = """
# HELP sent_bytes_total Bytes.
# TYPE sent_bytes_total counter
sent_bytes_total{bucket="models"} 1.5e+06
sent_bytes_total{bucket="other"} 24
sent_bytes_created 1.7e-05
up 1
"""


def test_a_series_is_the_sum_over_its_labels():
    assert parse_metrics(TEXT) == {
        "sent_bytes_total": 1_500_024,
        "sent_bytes_created": 1.7e-05,
        "up": 1,
    }
