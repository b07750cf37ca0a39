"""The tier on an emulated device under any history: the book, who is spared, and every byte."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fakes.device_world import HandClock, a_content
from modelcache_agent.decide.gpu.arena import Shape
from modelcache_agent.decide.gpu.handover import Pod
from modelcache_agent.decide.gpu.room import Stay
from modelcache_agent.ports.device import DeviceLostError
from modelcache_agent.tiers.gpu.contents import Loaded
from modelcache_agent.tiers.gpu.emulated import EmulatedDevice
from modelcache_agent.tiers.gpu.tier import GpuTier
from modelcache_api.names import Reason

UNIT = 4096
SLAB = 64 * UNIT
SIZES = [1, 3, 6, 9, 14, 20, 33, 70]
CONTENTS = st.integers(0, len(SIZES) - 1)
PODS = st.integers(0, 3)


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class TierMachine(RuleBasedStateMachine):
    """`maps` is what each pod has: the copy, and the descriptors of it."""

    def __init__(self):
        super().__init__()
        self.folder = TemporaryDirectory()
        root = Path(self.folder.name)
        self.contents = [
            a_content(root, f"v{number}", size * UNIT - 2000) for number, size in enumerate(SIZES)
        ]
        self.descriptors = count_descriptors()
        self.clock = HandClock()
        self.maps = {}
        self.device = None
        self.tier = GpuTier(self.open, 1 << 40, self.clock)
        self.tier.look()

    def open(self):
        self.device = EmulatedDevice(Shape(SLAB, UNIT))
        return self.device

    def held(self):
        return {loaded.content.key: loaded for loaded in self.tier.held()}

    def mapped(self):
        return [loaded for copies in self.maps.values() for loaded, _ in copies]

    def is_mapped(self, loaded):
        return any(loaded is other for other in self.mapped())

    @rule(number=CONTENTS, order=st.permutations(range(len(SIZES))), named=st.integers(0, 8))
    def promote(self, number, order, named):
        content, before = self.contents[number], self.held()
        names = [self.contents[other].key for other in order[:named]]
        found = self.tier.promote(content, names)
        after = self.held()
        gone = {key for key in before if key not in after}
        assert gone <= set(names), "only what was named gives way"
        assert not any(self.is_mapped(before[key]) for key in gone)
        if isinstance(found, Loaded):
            assert after[content.key] is found
        else:
            assert content.key not in after
            reasons = {Reason.GPU_OUT_OF_MEMORY, Reason.NEVER_FITS, Reason.GPU_UNAVAILABLE}
            assert found.reason in reasons
            assert (found.reason == Reason.NEVER_FITS) <= (SIZES[number] > 64)

    @rule(number=CONTENTS)
    def demote(self, number):
        self.tier.demote(self.contents[number].key)
        assert self.contents[number].key not in self.held()

    @rule(number=CONTENTS, pod=PODS)
    def attach(self, number, pod):
        content = self.contents[number]
        loaded = self.held().get(content.key)
        who = Pod("models", f"pod-{pod}", str(pod))
        found = self.tier.attach(content.key, who, frozenset({self.device.identity.uuid}))
        assert isinstance(found, Stay) == (loaded is None)
        if loaded is not None:
            self.maps.setdefault(pod, []).append((loaded, found.descriptors))
            assert self.tier.is_attached(content.key)

    @rule(pod=PODS)
    def detach(self, pod):
        self.tier.detach(str(pod))
        for loaded, descriptors in self.maps.pop(pod, []):
            self.check(loaded, descriptors)

    @rule(units=st.integers(0, 64))
    def others_use_the_card(self, units):
        self.device.foreign_bytes = min(units * UNIT, SLAB - self.device.arena.used_bytes)

    @rule()
    def lose(self):
        self.tier._give_up(DeviceLostError("GPU is lost"))
        assert self.tier.held() == ()
        self.close_maps()
        self.clock.now += 600
        self.tier.look()
        assert self.tier.health.is_available

    @invariant()
    def the_book_is_right(self):
        figures = self.tier.look()
        sizes = [loaded.size_bytes for loaded in self.tier.held()]
        assert figures.held_bytes == sum(sizes) == self.device.arena.used_bytes
        assert figures.held_bytes + self.device.foreign_bytes <= SLAB
        copies = {id(loaded): loaded for loaded in self.mapped()}.values()
        held = {id(loaded) for loaded in self.tier.held()}
        lingering = sum(loaded.size_bytes for loaded in copies if id(loaded) not in held)
        assert figures.lingering_bytes == lingering
        for loaded in self.tier.held():
            assert self.tier.is_attached(loaded.content.key) == self.is_mapped(loaded)

    def check(self, loaded, descriptors):
        """Every byte that a pod was given is right, whatever has happened since; then close."""
        [place], [fd] = loaded.placed, descriptors
        [source] = loaded.content.weights()
        assert os.pread(fd, place.size_bytes, place.offset) == source.location.read_bytes()
        os.close(fd)

    def close_maps(self):
        for copies in self.maps.values():
            for loaded, descriptors in copies:
                self.check(loaded, descriptors)
        self.maps.clear()

    def teardown(self):
        self.close_maps()
        self.tier.close()
        assert count_descriptors() == self.descriptors
        self.folder.cleanup()


TestTier = TierMachine.TestCase
TestTier.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
