"""A node is not labelled before every byte is there and right."""

from __future__ import annotations

import pytest

from fakes.fault_proxy import Fault, FaultProxy
from fakes.fetch_world import safetensors_body
from fakes.store_world import read_tree

MODEL = {"model.safetensors": safetensors_body(9 << 20), "config.json": b"{}"}
CUT = 100_000


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(close_after=CUT), id="hangs up"),
        pytest.param(Fault(close_after=CUT, framing="chunked"), id="chunked, cut"),
        pytest.param(Fault(close_after=CUT, content_length=CUT), id="announces the short length"),
    ],
)
async def test_C04_no_label_and_no_tree_before_every_byte_is_there(bench, fault):
    seen = []

    def look(before, after):
        if after:
            seen.append(read_tree(bench.tree("v1")))

    bench.cluster.on_labels = look
    bench.offer("v1", MODEL)
    with FaultProxy(bench.objects.address) as proxy:
        bench.grants.url_of = lambda uid, path: f"{proxy.endpoint}/{uid}/{path}"
        proxy.script("model.safetensors", fault, times=2)
        bench.cluster.want(bench.entry("v1", known=False))
        async with bench.started("--streams=1"):
            await bench.until_state("v1", "Cached")
            assert bench.cluster.labels == frozenset()
            bench.cluster.want(bench.entry("v1"))
            await bench.until(lambda: bench.cluster.labels, "the label")
        assert proxy.gets["v1/model.safetensors"] == 3
    assert seen == [MODEL]
