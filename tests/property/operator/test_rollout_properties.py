"""Whoever dies and whatever is lost between two steps, a rollout loses no version in service."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from builders import GIB
from fakes.rollout_world import VERSIONS, RolloutWorld
from modelcache_api.names import Condition
from modelcache_api.v1alpha1.model_cache import TrackSpec
from modelcache_api.v1alpha1.rollout import CanarySpec, RolloutSpec

_HOLD_SECONDS = 3600
_NODES = ("n0", "n1", "n2")
weights = st.sampled_from((0, 5, 40, 100))


class Rollout(RuleBasedStateMachine):
    """Users try, promote and go back; leaders die; requests, answers and reports are lost."""

    @initialize(capacity=st.sampled_from((2, 3)))
    def begin(self, capacity: int) -> None:
        self.world = RolloutWorld(len(_NODES), capacity * GIB)
        self.world.change()
        self.world.settle()
        self.has_room_for_all = capacity == len(VERSIONS)
        self.left: tuple[str, float] | None = None
        assert self.world.copies("uid-m1") == set(_NODES)

    # --- users ----------------------------------------------------------------------------

    @rule(
        version=st.sampled_from(VERSIONS),
        weight=weights,
        residency=st.sampled_from(("Full", "Proportional")),
        on_failure=st.sampled_from(("Hold", "Rollback")),
        steps=st.sampled_from((None, (5,), (5, 20))),
    )
    def try_canary(self, version, weight, residency, on_failure, steps) -> None:
        if version == self.world.wish.stable.model_version:
            return
        if self.left is not None and version == self.left[0]:
            self.left = None
        policy = RolloutSpec(residency=residency, on_failure=on_failure, steps=steps)
        canary = CanarySpec(model_version=version, weight=weight)
        self.world.change(canary=canary, rollout=policy)

    @rule()
    def remove_canary(self) -> None:
        self.world.change(canary=None)

    @precondition(lambda self: self._is_resident())
    @rule()
    def promote(self) -> None:
        name = self.world.wish.canary.model_version
        self.left = (self.world.wish.stable.model_version, self.world.clock.seconds)
        self.world.change(stable=TrackSpec(model_version=name), canary=None)

    @rule(version=st.sampled_from(VERSIONS), weight=weights)
    def go_all_the_way(self, version: str, weight: int) -> None:
        """What a user means to do, so that what follows a promotion is often met."""
        self.try_canary(version, weight, "Full", "Hold", None)
        self.world.settle()
        if self._is_resident():
            self.promote()

    @precondition(lambda self: self._find_held() is not None)
    @rule()
    def go_back(self) -> None:
        held = self._find_held()
        self.left = None
        self.world.change(stable=TrackSpec(model_version=held), canary=None)

    def _is_resident(self) -> bool:
        wish, status = self.world.wish, self.world.status
        if wish.canary is None or status.rollout is None or status.rollout.ended:
            return False
        found = next((c for c in status.conditions if c.type == Condition.CANARY_RESIDENT), None)
        is_its = status.rollout.model_version == wish.canary.model_version
        uid = f"uid-{wish.canary.model_version}"
        return bool(is_its and found and found.status == "True" and self.world.copies(uid))

    def _find_held(self) -> str | None:
        """A version whose hold has not ended, and of which there is a copy."""
        now = self.world.clock.now()
        for row in self.world.status.held:
            if row.until > now and self.world.copies(row.uid) and row.model_version:
                return row.model_version
        return None

    # --- the machinery, and what goes wrong in it -----------------------------------------

    @rule(keys=st.integers(1, 6))
    def work(self, keys: int) -> None:
        self.world.work(keys)

    @rule(node=st.sampled_from(_NODES), is_report_lost=st.booleans())
    def act(self, node: str, is_report_lost: bool) -> None:
        self.world.act(node, is_report_lost=is_report_lost)

    @rule(what=st.sampled_from(("request", "answer")))
    def lose(self, what: str) -> None:
        self.world.lose_next = what

    @rule()
    def kill_leader(self) -> None:
        self.world.kill_leader()

    @rule(seconds=st.sampled_from((10, 400, _HOLD_SECONDS + 1)))
    def pass_time(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @precondition(lambda self: self.world.wish.canary is not None)
    @rule(node=st.sampled_from(_NODES))
    def damage(self, node: str) -> None:
        uid = f"uid-{self.world.wish.canary.model_version}"
        if uid not in {track.uid for track in self.world.status.tracks if track.name == "stable"}:
            self.world.damage(node, uid)

    @precondition(lambda self: self._weight() > 0)
    @rule(which=st.sets(st.sampled_from(_NODES), min_size=1))
    def lose_bytes(self, which: set[str]) -> None:
        """Disks are replaced under their agents, which fetch again: nothing has failed."""
        for node in sorted(which):
            self.world.lose_bytes(node, f"uid-{self.world.wish.canary.model_version}")

    @rule(
        version=st.sampled_from(VERSIONS),
        weight=st.sampled_from((5, 100)),
        residency=st.sampled_from(("Full", "Proportional")),
        on_failure=st.sampled_from(("Hold", "Rollback")),
    )
    def lose_all_copies_in_service(self, version, weight, residency, on_failure) -> None:
        """At the worst moment, so that what follows is often met."""
        self.try_canary(version, weight, residency, on_failure, None)
        self.world.settle()
        if not self._weight():
            return
        self.lose_bytes(set(_NODES))
        for node in _NODES:
            self.world.act(node)
        self.world.work(6)

    def _weight(self) -> int:
        """What the canary that is wished for takes of the traffic."""
        wish, status = self.world.wish, self.world.status
        is_its = status.rollout is not None and wish.canary is not None
        is_its = is_its and status.rollout.model_version == wish.canary.model_version
        return status.traffic.canary if is_its and status.traffic else 0

    @rule()
    def settle(self) -> None:
        self.world.settle()
        if self.left is None or not self.has_room_for_all:
            return
        name, left_at = self.left
        if self.world.clock.seconds - left_at < _HOLD_SECONDS:
            assert self.world.copies(f"uid-{name}") == set(_NODES), "the hold ended too early"

    # --- how it ends ----------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.lose_next = None
        world.damaged.clear()
        world.settle()
        for _ in range(6):
            world.pass_time(_HOLD_SECONDS / 2)
            world.settle()
        wish, status = world.wish, world.status
        stable = f"uid-{wish.stable.model_version}"
        assert world.copies(stable) == set(_NODES)
        assert status.held == ()
        canary = f"uid-{wish.canary.model_version}" if wish.canary else None
        for node, disk in world.disk.items():
            assert disk.keys() <= {stable, canary}, f"{node} holds what nobody wants"
        if wish.canary is None:
            assert status.traffic is None
        elif status.rollout.ended:
            assert status.traffic.canary == 0
        else:
            assert status.traffic.canary == wish.canary.weight
            assert len(world.copies(canary)) == status.rollout.copies
            assert status.rollout.extra_bytes == status.rollout.copies * GIB


TestRollout = Rollout.TestCase
TestRollout.settings = settings(deadline=None, max_examples=40, stateful_step_count=30)


def test_a_held_version_leaves_the_room_that_a_canary_has_been_promised_since():
    """Its successor was not everywhere yet; once it is, the held copy must not stay after all."""
    story = Rollout()
    story.begin(capacity=2)
    policy = {"residency": "Proportional", "on_failure": "Hold", "steps": None}
    story.try_canary(version="m2", weight=0, **policy)
    story.world.settle()
    story.promote()
    story.try_canary(version="m3", weight=0, **policy)
    story.teardown()
