"""Models that wait for their turn, and pods that wait for models."""

from __future__ import annotations

from fakes.fetch_world import safetensors_body
from fakes.store_world import read_tree
from modelcache_api.names import EntryOrigin, Reason

MIB = 1 << 20


def ranges(bench, uid):
    return [head["range"] for path, head in bench.objects.requests if path.startswith(f"{uid}/")]


async def test_a_pods_model_pauses_a_placed_one_that_goes_on_where_it_was(bench):
    placed = {"model.safetensors": safetensors_body(64 * MIB)}
    bench.offer("placed", placed)
    bench.offer("asked", {"model.safetensors": safetensors_body(MIB, 1)})
    demand = bench.entry("asked").model_copy(update={"origin": EntryOrigin.DEMAND})
    bench.cluster.want(bench.entry("placed"))
    async with bench.started("--max-models=1", "--streams=1", "--max-bandwidth=24Mi"):
        await bench.until(
            lambda: (found := bench.cluster.entry("placed")) and found.progress_percent >= 20,
            "some bytes of the placed model",
        )
        bench.cluster.want(bench.entry("placed"), demand)
        await bench.until_state("asked", "Cached")
        assert bench.cluster.state("placed") != ("Cached", Reason.CACHED)
        assert any((bench.root / "partial" / "placed").iterdir())
        await bench.until_state("placed", "Cached")
    assert read_tree(bench.tree("placed")) == placed
    assert ranges(bench, "asked") == [f"bytes=0-{MIB - 1}"]
    assert ranges(bench, "placed").count("bytes=0-33554431") == 1, "begun once"
