"""C54 on a real small file system: foreign files fill it, and the whole agent reacts."""

from __future__ import annotations

import json
import mmap
import subprocess
from contextlib import AsyncExitStack, closing
from dataclasses import replace

import pytest

from fakes.fetch_world import random_body, safetensors_body
from modelcache_agent.decide.watermarks import Watermarks

MIB = 1 << 20
TOTAL = 100 * MIB
# Folders and records take pages of a tmpfs, too.
SPARE = MIB


def bodies(seed, size=4 * MIB):
    return {"model.safetensors": safetensors_body(size, seed)}


def fill_to(bench, percent) -> None:
    """Foreign files bring the file system to so many percent in use."""
    foreign = bench.root.parent / "foreign"
    foreign.unlink(missing_ok=True)
    ours = int(subprocess.check_output(["du", "-sB1", str(bench.root)]).split()[0])
    foreign.write_bytes(random_body(TOTAL * percent // 100 - ours - SPARE // 2))


@pytest.fixture
def small(bench, tmp_path):
    """The store on a file system of 100 MiB, which others use as well."""
    top = tmp_path / "small"
    top.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={TOTAL}", "none", str(top)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("C54 is not proved here: a small file system must be mounted, as root")
    (top / "store").mkdir()
    try:
        yield replace(bench, root=top / "store", capacity=TOTAL, watermarks=Watermarks(80, 75))
    finally:
        subprocess.run(["umount", str(top)], check=True)


async def test_C54_foreign_files_cost_unused_models_first_and_nothing_is_fetched(small):
    for number, uid in enumerate(("idle", "used", "kept", "new")):
        small.offer(uid, bodies(number))
    idle, used = (small.entry(uid, evictable=True) for uid in ("idle", "used"))
    kept = small.entry("kept")
    seen = []

    def tell():
        return small.cluster.status.tiers[0].pressure or ""

    small.cluster.on_labels = lambda _b, after: seen.append(
        (idle.label_key in after, small.tree("idle").exists())
    )
    async with small.started("--lease-interval=500ms"), AsyncExitStack() as users:
        small.cluster.want(idle, used, kept)
        everything = {idle.label_key, used.label_key, kept.label_key}
        await small.until(lambda: small.cluster.labels == everything, "three models")
        with (small.tree("used") / "model.safetensors").open("rb") as file:
            users.enter_context(closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
        seen.clear()
        for percent in (84, 92):
            fill_to(small, percent)
            small.cluster.want(idle, used, kept, small.entry("new"))
            await small.until(lambda: not small.tree("idle").exists(), "the unused one to go")
            await small.until_state("new", "Failed", "DiskPressure")
            await small.until_state("idle", "Evicted", "DiskPressure")
        await small.until(lambda: tell().startswith("92 % of the file system's 100Mi are used"))
        assert seen == [(False, True)], "the label goes first"
        assert small.cluster.labels == {used.label_key, kept.label_key}
        assert "comes back when" in small.cluster.entry("idle").message
        told = json.loads((small.root / "decisions.json").read_text())["decisions"]
        assert [one["kind"] for one in told] == ["Evicted", "PressureBegan"]
        assert told[0]["uids"] == ["idle"]
        assert told[0]["cause"] == "the file system is above its watermark"
        asked = len(small.objects.requests)
        writes = len(small.cluster.status_writes)
        small.cluster.nudge()
        await small.until(lambda: small.cluster.leases >= 2, "a while to pass", seconds=30)
        assert len(small.cluster.status_writes) <= writes + 1, "it does not spin"
        assert len(small.objects.requests) == asked, "nothing was fetched"
        (small.root.parent / "foreign").unlink()
        small.cluster.nudge()
        await small.until_state("new", "Cached")
        assert tell() == ""
        assert small.cluster.state("idle") == ("Evicted", "Evicted")
