"""What our programs say at /metrics."""

from __future__ import annotations

import re
import urllib.request
from collections import defaultdict

from modelcache_testbed.ports import LOOPBACK

_SERIES = re.compile(r"^(\w+)(?:\{.*\})? ([0-9.e+-]+)$", re.MULTILINE)


def parse_metrics(text: str) -> dict[str, float]:
    """Each series by its name, summed over its labels."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, value in _SERIES.findall(text):
        found[name] += float(value)
    return dict(found)


def read_metrics(port: int) -> dict[str, float]:
    """Those of a program that listens on the loopback."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{LOOPBACK}:{port}/metrics", timeout=10) as answer:
        return parse_metrics(answer.read().decode())
