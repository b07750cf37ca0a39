"""The tier on the emulated device: real bytes and descriptors, host memory for a card."""

from __future__ import annotations

import fcntl
import mmap
import os
import random
from itertools import pairwise
from pathlib import Path

import pytest

from fakes.device_world import MIB, POD, HandClock, a_content
from modelcache_agent.decide.gpu.arena import GENERAL, Shape
from modelcache_agent.decide.gpu.handover import Pod
from modelcache_agent.decide.gpu.room import Stay
from modelcache_agent.ports.device import DeviceLostError, DeviceUnavailableError
from modelcache_agent.tiers.gpu.contents import Loaded
from modelcache_agent.tiers.gpu.emulated import EmulatedDevice
from modelcache_agent.tiers.gpu.tier import GpuTier
from modelcache_api.names import Reason


@pytest.fixture
def device():
    return EmulatedDevice(Shape(64 * MIB))


@pytest.fixture
def tier(device):
    tier = GpuTier(lambda: device, 1 << 40, HandClock())
    tier.look()
    yield tier
    tier.close()


def given(device):
    return frozenset({device.identity.uuid})


def read_handover(handover, path):
    """The bytes of one file, as an importer finds them."""
    whole = b"".join(
        os.pread(fd, size, 0)
        for fd, size in zip(handover.descriptors, handover.layout.extents, strict=True)
    )
    place = next(file for file in handover.layout.files if file.path == path)
    return whole[place.offset : place.offset + place.size_bytes]


@pytest.mark.parametrize("knows_pieces", [True, False])
def test_a_pod_finds_every_file_byte_for_byte(tier, device, tmp_path, knows_pieces):
    content = a_content(tmp_path, "v1", 9 * MIB, 100, knows_pieces=knows_pieces)
    assert isinstance(tier.promote(content), Loaded)
    handover = tier.attach(content.key, POD, given(device))
    assert handover.layout.is_emulated
    for file in content.weights():
        assert read_handover(handover, file.content.path) == file.location.read_bytes()
    for fd in handover.descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(fd, b"x", 0)
        assert not os.get_inheritable(fd)
        os.close(fd)


def test_a_pod_that_asks_again_and_again_is_written_down_once(tier, device, tmp_path):
    content = a_content(tmp_path, "v1", MIB)
    tier.promote(content)
    for _ in range(3):
        for fd in tier.attach(content.key, POD, given(device)).descriptors:
            os.close(fd)
    assert [len(maps) for maps in tier._maps.values()] == [1]


def test_who_has_the_descriptors_cannot_change_a_byte_even_as_root(tier, device, tmp_path):
    content = a_content(tmp_path, "v1", MIB)
    tier.promote(content)
    handover = tier.attach(content.key, POD, given(device))
    (fd,), (size,) = handover.descriptors, handover.layout.extents
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    for attack in (
        lambda: os.pwrite(again, b"x", 0),
        lambda: os.truncate(again, 0),
        lambda: os.truncate(again, 2 * size),
        lambda: mmap.mmap(again, size, prot=mmap.PROT_READ | mmap.PROT_WRITE),
        lambda: mmap.mmap(fd, size, prot=mmap.PROT_READ | mmap.PROT_WRITE),
        lambda: fcntl.fcntl(again, fcntl.F_ADD_SEALS, 0),
    ):
        with pytest.raises(PermissionError):
            attack()
    path = content.weights()[0]
    assert read_handover(handover, path.content.path) == path.location.read_bytes()
    for descriptor in (fd, again):
        os.close(descriptor)


@pytest.mark.parametrize("knows_pieces", [True, False])
def test_a_file_that_is_not_what_was_verified_leaves_nothing_behind(tier, tmp_path, knows_pieces):
    content = a_content(tmp_path, "v1", MIB, MIB, knows_pieces=knows_pieces)
    path = content.weights()[1].location
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    found = tier.promote(content)
    assert isinstance(found, Stay)
    assert found.reason == Reason.DAMAGED
    assert "w1.safetensors" in found.message
    assert tier.look().held_bytes == 0
    assert tier.look().budget.foreign_bytes == 0


def test_bytes_that_changed_on_the_device_are_not_handed_over(tier, device, tmp_path):
    content = a_content(tmp_path, "v1", MIB)
    loaded = tier.promote(content)
    device.write(loaded.extents[0], 5000, memoryview(b"flip"))
    found = tier.attach(content.key, POD, given(device))
    assert found.reason == Reason.DAMAGED
    assert tier.held() == ()


def test_only_pods_of_the_namespace_with_this_device_get_descriptors(tier, device, tmp_path):
    content = a_content(tmp_path, "v1", MIB)
    tier.promote(content)
    other = Pod("other", "reader-0", "uid-2")
    assert tier.attach(content.key, other, given(device)).reason == Reason.VOLUME_REFUSED
    assert tier.attach(content.key, POD, frozenset({"GPU-1"})).reason == Reason.GPU_NOT_GIVEN
    assert tier.attach(content.key, POD, None).reason == Reason.GPU_NOT_GIVEN
    assert not tier.is_attached(content.key)


def test_equal_bytes_of_two_namespaces_are_two_contents(tier, tmp_path):
    first, second = (a_content(tmp_path, "v1", MIB, namespace=name) for name in ("a", "b"))
    extents = [tier.promote(content).extents for content in (first, second)]
    assert not set(extents[0]) & set(extents[1])
    assert tier.look().held_bytes >= 2 * MIB


def test_what_a_pod_maps_is_not_evicted_and_lingers_after_demotion(tier, device, tmp_path):
    mapped, other = a_content(tmp_path, "v1", 30 * MIB), a_content(tmp_path, "v2", 20 * MIB)
    newcomer = a_content(tmp_path, "v3", 40 * MIB)
    tier.promote(mapped)
    tier.promote(other)
    handover = tier.attach(mapped.key, POD, given(device))
    found = tier.promote(newcomer, [mapped.key, other.key])
    assert found.reason == Reason.GPU_OUT_OF_MEMORY
    assert {loaded.content.key for loaded in tier.held()} == {mapped.key, other.key}
    tier.demote(mapped.key)
    assert tier.look().lingering_bytes >= 30 * MIB
    path = mapped.weights()[0]
    assert read_handover(handover, path.content.path) == path.location.read_bytes()
    tier.detach(POD.uid)
    assert tier.look().lingering_bytes == 0
    for fd in handover.descriptors:
        os.close(fd)


def test_what_can_never_fit_evicts_nobody(tier, tmp_path):
    small = a_content(tmp_path, "v1", MIB)
    tier.promote(small)
    found = tier.promote(a_content(tmp_path, "v2", 65 * MIB), [small.key])
    assert found.reason == Reason.NEVER_FITS
    assert [loaded.content.key for loaded in tier.held()] == [small.key]


def test_a_version_without_tensors_stays_where_it_is(tier, tmp_path):
    assert tier.promote(a_content(tmp_path, "v1")).reason == Reason.GPU_UNSUITED


def test_C66_room_in_pieces_is_mended_by_compaction_and_the_bytes_stay_right(
    tier, device, tmp_path
):
    contents = [a_content(tmp_path, f"v{number}", 7 * MIB) for number in range(8)]
    for content in contents:
        tier.promote(content)
    for content in contents[::2]:
        tier.demote(content.key)
    assert device.fragmentation()[GENERAL] > 0.5
    large = a_content(tmp_path, "large", 20 * MIB)
    assert isinstance(tier.promote(large), Loaded)
    assert device.moved_bytes > 0
    for content in (*contents[1::2], large):
        handover = tier.attach(content.key, POD, given(device))
        path = content.weights()[0]
        assert read_handover(handover, path.content.path) == path.location.read_bytes()
        for fd in handover.descriptors:
            os.close(fd)


def test_C66_a_region_in_pieces_is_put_in_order_but_not_what_is_mapped(tier, device, tmp_path):
    contents = [a_content(tmp_path, f"v{number}", 7 * MIB) for number in range(8)]
    for content in contents:
        tier.promote(content)
    for content in contents[::2]:
        tier.demote(content.key)
    handover = tier.attach(contents[7].key, POD, given(device))
    before = device.fragmentation()[GENERAL]
    assert device.tidy(device.arena.region(GENERAL)) > 0
    assert device.fragmentation()[GENERAL] < before
    assert device.tidy(device.arena.region(GENERAL)) == 0
    for fd in handover.descriptors:
        os.close(fd)


def test_C66_500_rounds_beside_others_leave_nothing(tmp_path):
    device = EmulatedDevice(Shape(200 * MIB), foreign_bytes=180 * MIB)
    tier = GpuTier(lambda: device, 1 << 40, HandClock())
    tier.look()
    sizes = {"large": 15 * MIB, "medium": 3 * MIB, "small": MIB // 4, "tiny": 100}
    contents = {name: a_content(tmp_path, name, size) for name, size in sizes.items()}
    chance, refused = random.Random(66), 0
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(500):
        content = contents[chance.choice(list(contents))]
        if chance.random() < 0.5:
            order = [loaded.content.key for loaded in tier.held()]
            chance.shuffle(order)
            refused += isinstance(tier.promote(content, order[: chance.randrange(4)]), Stay)
        else:
            tier.demote(content.key)
        assert tier.look().held_bytes <= 20 * MIB
    assert refused
    for loaded in tier.held():
        tier.demote(loaded.content.key)
    assert device.arena.used_bytes == 0
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_C66_others_that_take_the_card_are_seen_and_nothing_of_theirs_is_counted_as_ours(
    tier, device, tmp_path
):
    tier.promote(a_content(tmp_path, "v1", 20 * MIB))
    device.foreign_bytes = 50 * MIB
    figures = tier.look()
    assert figures.budget.capacity_bytes == 14 * MIB
    assert 0 < figures.budget.surplus_bytes(figures.held_bytes) <= figures.held_bytes


def test_C63_a_card_that_fails_is_a_state_with_its_text_and_is_tried_again_slowly(tmp_path):
    device, clock, attempts = EmulatedDevice(Shape(64 * MIB)), HandClock(), []
    text = "Driver/library version mismatch"

    def open_device():
        attempts.append(clock.now)
        if len(attempts) < 4:
            raise DeviceUnavailableError(text)
        return device

    tier = GpuTier(open_device, 1 << 40, clock)
    content = a_content(tmp_path, "v1", MIB)
    for _ in range(2000):
        figures = tier.look()
        if tier.health.is_available:
            break
        assert figures.budget.capacity_bytes == 0
        assert (tier.health.reason, tier.health.message) == (Reason.GPU_UNAVAILABLE, text)
        found = tier.promote(content)
        assert (found.reason, found.message) == (Reason.GPU_UNAVAILABLE, text)
        clock.now += 1
    assert [after - before for before, after in pairwise(attempts)] == [30, 60, 120]
    assert isinstance(tier.promote(content), Loaded)


def test_a_lost_device_holds_nothing_any_more(tier, device, tmp_path, monkeypatch):
    content = a_content(tmp_path, "v1", MIB)
    tier.promote(content)

    def lose(*_):
        raise DeviceLostError("GPU is lost")

    monkeypatch.setattr(device, "read_back", lose)
    found = tier.attach(content.key, POD, given(device))
    assert (found.reason, found.message) == (Reason.GPU_UNAVAILABLE, "GPU is lost")
    assert tier.held() == ()
    assert tier.identity is None
