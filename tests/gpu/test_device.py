"""What only a card can show. Figures are printed, never asserted."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

from fakes.device_processes import Importer, exporting
from fakes.device_world import MIB, HandClock, a_content, digests_of_weights
from modelcache_agent.decide.gpu.extents import cut_extents
from modelcache_agent.ports.device import OutOfDeviceMemoryError
from modelcache_agent.tiers.gpu.contents import Loaded
from modelcache_agent.tiers.gpu.tier import GpuTier

pytestmark = pytest.mark.gpu
ENVIRONMENT = dict(os.environ, PYTHONPATH="tests")


@pytest.fixture
def exported(device, tmp_path):
    with exporting(ENVIRONMENT, tmp_path, "cuda") as found:
        yield found


def test_a_second_process_reads_it_also_after_the_exporter_was_killed(exported, tmp_path):
    exporter, layout, descriptors = exported
    importer = Importer(ENVIRONMENT, layout, descriptors)
    assert importer.ask("digest") == digests_of_weights(tmp_path)
    exporter.send_signal(signal.SIGKILL)
    exporter.wait(60)
    assert importer.ask("digest") == digests_of_weights(tmp_path)
    importer.close()
    late = Importer(ENVIRONMENT, layout, descriptors)
    assert late.ask("digest") == digests_of_weights(tmp_path)
    late.close()


@pytest.mark.parametrize("deed", ["write", "spoil"])
def test_a_write_through_the_read_only_map_fails_and_changes_nothing(exported, tmp_path, deed):
    _, layout, descriptors = exported
    writer = Importer(ENVIRONMENT, layout, descriptors)
    assert writer.ask(deed) not in {None, "CUDA_SUCCESS"}
    writer.close()
    reader = Importer(ENVIRONMENT, layout, descriptors)
    assert reader.ask("digest") == digests_of_weights(tmp_path)
    reader.close()


def test_torch_computes_on_the_shared_memory(exported):
    _, layout, descriptors = exported
    importer = Importer(ENVIRONMENT, layout, descriptors)
    where, difference = importer.ask("matmul")
    assert where == "cuda:0"
    assert difference < 1e-3
    importer.close()


def fill(device, size):
    """Extents until the card refuses."""
    extents = []
    with suppress(OutOfDeviceMemoryError):
        while True:
            extents.append(device.allocate(size, "models"))
    return extents


def test_C66_one_large_content_fits_after_every_second_extent_was_freed(device):
    before = device.figures().used_bytes
    small = fill(device, 64 * MIB)
    assert len(small) > 8, "the card is full of others' memory"
    for extent in small[::2]:
        device.free(extent)
    freed = 64 * MIB * len(small[::2])
    for size in cut_extents(freed * 9 // 10, device.rules):
        device.allocate(size, "models")
    device.close()
    assert device.figures().used_bytes <= before + 64 * MIB


def test_C66_500_rounds_leave_the_cards_memory_as_it_was(device, tmp_path):
    tier = GpuTier(lambda: device, 1 << 60, HandClock())
    tier.look()
    contents = [a_content(tmp_path, name, size * MIB) for name, size in (("a", 90), ("b", 16))]
    assert isinstance(tier.promote(contents[0]), Loaded)
    tier.demote(contents[0].key)
    before = device.figures().used_bytes
    for number in range(500):
        tier.promote(contents[number % 2])
        tier.demote(contents[(number + number // 3) % 2].key)
    for content in contents:
        tier.demote(content.key)
    assert device.figures().used_bytes == before


def test_a_restart_begins_empty_and_harms_nobody_who_reads(exported, tmp_path):
    exporter, layout, descriptors = exported
    reader = Importer(ENVIRONMENT, layout, descriptors)
    assert reader.ask("digest") == digests_of_weights(tmp_path)
    exporter.send_signal(signal.SIGKILL)
    exporter.wait(60)
    again = tmp_path / "again"
    again.mkdir()
    with exporting(ENVIRONMENT, again, "cuda") as (_, new_layout, new_descriptors):
        second = Importer(ENVIRONMENT, new_layout, new_descriptors)
        assert second.ask("digest") == digests_of_weights(again)
        assert reader.ask("digest") == digests_of_weights(tmp_path)
        second.close()
    reader.close()


def test_bandwidth_from_host_memory(device, tmp_path, capsys):
    content = a_content(tmp_path, "large", *[512 * MIB] * 4)
    tier = GpuTier(lambda: device, 1 << 60, HandClock())
    tier.look()
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        assert isinstance(tier.promote(content), Loaded)
        seconds.append(time.monotonic() - began)
        tier.demote(content.key)
    extent = device.allocate(512 * MIB, "models")
    staging = device.staging()
    bare = []
    for _ in range(3):
        began = time.monotonic()
        for offset in range(0, 512 * MIB, 8 * MIB):
            staging.take()
            staging.put(0, 8 * MIB, extent, offset)
        staging.finish()
        bare.append(time.monotonic() - began)
    device.free(extent)
    with capsys.disabled():
        print(
            f"\nload, verified twice: {2 / min(seconds):.2f} GiB/s; copies alone: "
            f"{0.5 / min(bare):.2f} GiB/s; page-locked: {staging.pageable_because or 'all'}"
        )
