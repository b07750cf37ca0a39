"""A limit of the fleet: the whole agent waits for its turn, and stops when it loses it."""

from __future__ import annotations

from fakes.fetch_world import safetensors_body
from fakes.store_world import read_tree
from modelcache_api.names import Reason
from modelcache_api.wire import SlotAnswer

MIB = 1 << 20
FULL = SlotAnswer(message="2 nodes read s3://m/ now", ask_again_seconds=0.1)
GRANTED = SlotAnswer(lease_seconds=2.0, ask_again_seconds=0.1)


async def test_who_waits_is_queued_and_who_loses_its_slot_goes_on_where_it_was(bench):
    bodies = {"model.safetensors": safetensors_body(64 * MIB)}
    bench.offer("v1", bodies)
    bench.cluster.want(bench.entry("v1"))
    bench.grants.slot = FULL
    async with bench.started("--streams=1"):
        await bench.until_state("v1", "Pending", Reason.QUEUED)
        assert bench.cluster.entry("v1").message == FULL.message
        assert bench.objects.requests == [], "the source is not even asked"
        rate = 24 * MIB
        bench.grants.slot = GRANTED.model_copy(update={"bytes_per_second": rate})
        await bench.until(
            lambda: bench.cluster.entry("v1").progress_percent >= 20, "some bytes of the model"
        )
        bench.grants.slot = FULL
        await bench.until_state("v1", "Pending", Reason.QUEUED)
        assert any((bench.root / "partial" / "v1").iterdir())
        bench.grants.slot = GRANTED
        await bench.until_state("v1", "Cached")
        await bench.until(lambda: given_back(bench), "the slot to be given back")
    assert read_tree(bench.tree("v1")) == bodies
    starts = [head["range"] for path, head in bench.objects.requests]
    assert starts.count("bytes=0-33554431") == 1, "begun once"


def given_back(bench):
    _path, asked = next(item for item in reversed(bench.grants.requests) if "slot" in item[0])
    return not asked["slot"]["wants"]
