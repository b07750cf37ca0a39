"""What happens in a process whose CUDA driver is the stand-in. Each scene returns plain values."""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import time
from pathlib import Path

from fakes.cuda_stand_in import live_objects
from fakes.device_world import MIB, POD, HandClock, a_content
from modelcache_agent.decide.gpu.extents import ExtentRules
from modelcache_agent.decide.gpu.room import Stay
from modelcache_agent.ports.device import DeviceError
from modelcache_agent.tiers.gpu.cuda_vmm import CudaDevice
from modelcache_agent.tiers.gpu.nvml import read_cards
from modelcache_agent.tiers.gpu.pinned import PinnedRing
from modelcache_agent.tiers.gpu.tier import GpuTier


def script(library: str, words: str) -> None:
    os.environ[f"STANDIN_{library}"] = words


def open_small() -> CudaDevice:
    """With extents of 4 MiB, so that small contents have several."""
    device = CudaDevice()
    device.rules = ExtentRules(device.rules.granularity_bytes, 4 * MIB)
    return device


def a_tier(open_device=open_small, setting=1 << 40):
    clock = HandClock()
    tier = GpuTier(open_device, setting, clock)
    tier.look()
    return tier, clock


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def told(found) -> str:
    return f"{found.reason}: {found.message}" if isinstance(found, Stay) else "loaded"


def whole_way(folder):
    """Load, hand over, read what was exported as another process would, give all back."""
    tier, _ = a_tier()
    content = a_content(Path(folder), "v1", 9 * MIB, 3 * MIB)
    loaded = tier.promote(content)
    during = live_objects()
    handover = tier.attach(content.key, POD, frozenset({f"{tier.identity.uuid}::3"}))
    whole = b"".join(
        os.pread(fd, size, 0)
        for fd, size in zip(handover.descriptors, handover.layout.extents, strict=True)
    )
    right = [
        whole[place.offset : place.offset + place.size_bytes] == source.location.read_bytes()
        for place, source in zip(handover.layout.files, content.weights(), strict=True)
    ]
    inherited = [os.get_inheritable(fd) for fd in handover.descriptors]
    for fd in handover.descriptors:
        os.close(fd)
    figures = tier.look()
    tier.close()
    return {
        "right": right,
        "inherited": inherited,
        "extents": handover.layout.extents,
        "emulated": handover.layout.is_emulated,
        "during": during,
        "after": live_objects(),
        "held": figures.held_bytes,
        "loaded": len(loaded.extents),
    }


def mismatch(folder):
    """C63: NVML stops to start at some call; the tier is looked at for an hour."""
    tier, clock = a_tier()
    content = a_content(Path(folder), "v1", MIB)
    seen, held, at_first = [], [], told(tier.promote(content))
    for _ in range(3600):
        tier.look()
        seen.append(tier.health.message)
        held.append(len(tier.held()))
        clock.now += 1
    script("NVML", "")
    while not tier.health.is_available:
        clock.now += 1
        tier.look()
    return {
        "at_first": at_first,
        "good": seen.count(""),
        "texts": sorted(set(seen)),
        "held_while_good": sum(held[: seen.count("")]),
        "held_after": sum(held[seen.count("") :]),
        "failures": tier.health.pause.failures,
        "then": told(tier.promote(content)),
        "sessions": ctypes.CDLL("libnvidia-ml.so.1").standin_sessions(),
    }


def openings(*scripts):
    """What opening a card says under each script."""
    return [opening(words) for words in scripts]


def opening(words=""):
    script("CUDA", words)
    try:
        device = CudaDevice()
    except DeviceError as error:
        return {"error": type(error).__name__, "text": str(error)}
    figures = device.figures()
    found = [device.identity.uuid, figures.total_bytes, figures.used_bytes, figures.is_host_memory]
    device.close()
    return {"found": found, "after": live_objects()}


def cards(memory_info):
    """C64: what NVML says of each card."""
    found = read_cards(Path(memory_info))
    if found is None:
        return None
    return [
        [
            c.uuid,
            c.figures.total_bytes,
            c.figures.used_bytes,
            c.figures.is_host_memory,
        ]
        for c in found
    ]


def pins(folder, *scripts):
    """C65: loads while page-locking fails."""
    return [load_often(Path(folder) / str(n), words) for n, words in enumerate(scripts)]


def load_often(folder, words, rounds=5):
    script("CUDA", words)
    tier, _ = a_tier()
    content = a_content(folder, "v1", 9 * MIB)
    outcomes = set()
    for _ in range(rounds):
        outcomes.add(told(tier.promote(content)))
        ring = tier._device.staging()
        outcomes.add(f"verified {told(tier.attach(content.key, POD, frozenset()))}"[:8])
        tier.demote(content.key)
    ring._locker.join(60)
    found = {
        "outcomes": sorted(outcomes),
        "why": ring.pageable_because,
        "pinned": ring.pinned_bytes,
    }
    tier.close()
    return {**found, "after": live_objects()}


def slow_pins(folder):
    """C65: one load while page-locking takes long, and the end in the middle of it."""
    content = a_content(Path(folder), "v1", 9 * MIB)
    tier, _ = a_tier()
    began = time.monotonic()
    outcome, why = told(tier.promote(content)), tier._device.staging().pageable_because
    took = time.monotonic() - began
    tier.close()
    return {"outcome": outcome, "why": why, "took": took, "after": live_objects()}


def empty_ring():
    """C65: no lock of nothing is ever asked for."""
    device = CudaDevice()
    try:
        PinnedRing(device._calls, device._enter, device._address, 0)
    except ValueError as error:
        return str(error)
    return None


def rounds(folder):
    """C66: 500 rounds on a card of which others have nine tenths."""
    tier, _ = a_tier()
    sizes = {"large": 15 * MIB, "medium": 3 * MIB, "small": MIB // 4}
    contents = {name: a_content(Path(folder), name, size) for name, size in sizes.items()}
    chance, outcomes = random.Random(66), {}
    tier.promote(contents["large"])
    for content in contents.values():
        tier.demote(content.key)
    before, descriptors = live_objects(), count_descriptors()
    for _ in range(500):
        content = contents[chance.choice(list(contents))]
        if chance.random() < 0.6:
            order = [loaded.content.key for loaded in tier.held()]
            outcome = told(tier.promote(content, order[: chance.randrange(3)])).partition(":")[0]
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        else:
            tier.demote(content.key)
    for loaded in tier.held():
        tier.demote(loaded.content.key)
    leaked = count_descriptors() - descriptors
    after = live_objects()
    tier.close()
    return {
        "outcomes": outcomes,
        "same": before == after,
        "descriptors": leaked,
        "end": live_objects(),
    }


def refused(folder):
    """C66: the card refuses although figures say that there is room; then somebody takes it all."""
    tier, _ = a_tier()
    first, second = (a_content(Path(folder), name, 6 * MIB) for name in ("v1", "v2"))
    told_first = told(tier.promote(first))
    script("CUDA", f"largest={MIB}")
    alone = told(tier.promote(second))
    evicting = told(tier.promote(second, [first.key]))
    held = [loaded.content.key.uid for loaded in tier.held()]
    script("CUDA", "")
    after = told(tier.promote(second))
    script("NVML", f"total={16 * MIB} used={16 * MIB}")
    figures = tier.look()
    return {
        "first": told_first,
        "alone": alone,
        "evicting": evicting,
        "held": held,
        "after": after,
        "capacity": figures.budget.capacity_bytes,
        "surplus": figures.budget.surplus_bytes(figures.held_bytes),
        "held_bytes": figures.held_bytes,
    }


def half_way(folder, *scripts):
    """One call of a load or a handover fails; what the tier says, and what is left of it."""
    found = {}
    for number, words in enumerate(scripts):
        script("CUDA", words)
        tier, _ = a_tier()
        content = a_content(Path(folder), f"v{number}", 9 * MIB)
        descriptors = count_descriptors()
        outcome = told(tier.promote(content))
        if outcome == "loaded":
            handover = tier.attach(content.key, POD, frozenset({tier.identity.uuid}))
            outcome = told(handover)
            for fd in () if isinstance(handover, Stay) else handover.descriptors:
                os.close(fd)
        leaked = (
            count_descriptors() - descriptors - sum(len(loaded.extents) for loaded in tier.held())
        )
        tier.close()
        found[words] = [outcome, leaked, live_objects()]
    return found


def lost(folder):
    """The card dies in the middle of a load."""
    tier, clock = a_tier()
    content = a_content(Path(folder), "v1", 30 * MIB)
    outcome = told(tier.promote(content))
    state = [tier.health.is_available, len(tier.held()), live_objects()]
    script("CUDA", "")
    clock.now += 60
    tier.look()
    return {"outcome": outcome, "state": state, "then": told(tier.promote(content))}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
