"""A rollout as the leader's core goes through it, on a cluster in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import GIB, digest, make_cache, make_pod_view
from fakes.memory_core import MemoryCore, MemoryWorld
from modelcache_api.names import Condition, EntryOrigin, EntryState, Reason
from modelcache_api.v1alpha1.rollout import CanarySpec, RolloutSpec
from modelcache_operator import routing
from modelcache_operator.decide.world import NodeName, ObjectKey, Uid
from modelcache_operator.keys import cache_key, node_key
from modelcache_operator.ports.sources import SourceError

C1 = ObjectKey("search", "c1")


class Stage:
    """Versions m1, m2, m3 of one ModelCache."""

    def __init__(self, nodes: int = 3, copies: int = 2, **placement) -> None:
        self.world = MemoryWorld()
        for number in range(nodes):
            self.world.add_node(f"n{number}")
        self.placement = {"copies": copies, **placement}
        self.generation = 1
        self.core = MemoryCore(self.world)
        self.core.begin()
        self.world.add_version("m1")
        self.wish("m1")

    def wish(self, stable: str, canary: str | None = None, weight: int = 0, **rollout) -> None:
        """The user's whole spec."""
        found = self.world.cache.model_cache(C1)
        made = make_cache("c1", version=stable, generation=self.generation, **self.placement)
        tried = CanarySpec(model_version=canary, weight=weight) if canary else None
        spec = made.spec.model_copy(
            update={"canary": tried, "rollout": RolloutSpec(**rollout) if rollout else None}
        )
        status = found.status if found else made.status
        self.generation += 1
        self.world.show(replace(made, spec=spec, status=status))
        self.core.settle()

    def take_over(self) -> None:
        """The leader is killed; another one knows what can be read."""
        self.core.end()
        self.begin()

    def begin(self) -> None:
        self.core = MemoryCore(self.world)
        self.core.begin()

    def add_node(self, name: str) -> None:
        self.world.add_node(name)
        self.core.list_leases()
        self.core.settle()

    def pass_time(self, seconds: float) -> None:
        for _ in range(max(1, int(seconds // 100))):
            self.world.clock.seconds += seconds / max(1, int(seconds // 100))
            self.world.renew_all()
            self.core.list_leases()
        self.core.router.look_at_everything()
        self.core.settle()

    @property
    def status(self):
        return self.world.cache.model_cache(C1).status

    @property
    def weight(self) -> int:
        return self.status.traffic.canary if self.status.traffic else 0

    def said(self, kind=Condition.ROLLOUT_PROGRESSING):
        found = next(c for c in self.status.conditions if c.type == kind)
        return found.status, found.reason

    def holders(self, name: str, *, origin: EntryOrigin | None = None) -> set[str]:
        found = set()
        for node in self.world.cache.cache_nodes():
            entry = node.spec.find_entry(f"uid-{name}")
            if entry is not None and (origin is None or entry.origin is origin):
                found.add(str(node.name))
        return found

    def labelled(self) -> set[str]:
        nodes = self.world.cache.cache_nodes()
        return {e.uid for node in nodes for e in node.spec.entries if e.label_key is not None}

    def refs(self):
        nodes = self.world.cache.cache_nodes()
        return {node.name: ref for node in nodes for ref in node.spec.caches}

    def reasons(self) -> list[str]:
        return [note.reason for note in self.world.events if note.regarding.kind == "ModelCache"]


@pytest.fixture
def stage():
    return Stage()


def canary_pod(stage, name="p1", **fields):
    """On a node of stable, where its volume shows what is the canary by then."""
    node = NodeName(min(stage.holders("m1")))
    return make_pod_view(name, **{"track": "canary", "node": node, "is_ready": True, **fields})


def test_a_canary_comes_beside_stable_and_takes_its_weight_when_it_is_verified(stage):
    stable = stage.holders("m1")
    for node in stable:
        stage.world.states[node, "uid-m2"] = EntryState.DOWNLOADING
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 5)
    assert stage.holders("m2") == stable
    assert (stage.weight, stage.said()) == (0, ("True", Reason.CANARY_LOADING))
    assert stage.said(Condition.CANARY_RESIDENT) == ("False", Reason.CANARY_LOADING)
    stage.world.states.clear()
    stage.core.settle()
    assert (stage.weight, stage.said()) == (5, ("True", Reason.WEIGHT_REACHED))
    assert stage.said(Condition.CANARY_RESIDENT) == ("True", Reason.CANARY_RESIDENT)
    assert stage.status.traffic_summary == "95/5"
    assert [t.name for t in stage.status.tracks] == ["stable", "canary"]
    for ref in stage.refs().values():
        assert (ref.stable_uid, ref.canary_uid, ref.canary_weight) == ("uid-m1", "uid-m2", 5)
    for node in stage.world.cache.cache_nodes():
        assert not any(entry.evictable for entry in node.spec.entries)
    assert stage.holders("m1") == stable


def test_C54_a_canary_comes_as_soon_as_the_disk_pressure_is_over(stage):
    stable = stage.holders("m1")
    stage.world.pressure[min(stable)] = "92 % are used"
    stage.core.settle()
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 5)
    assert (stage.weight, stage.said()) == (0, ("False", Reason.DISK_PRESSURE))
    assert not stage.holders("m2")
    stage.world.pressure.clear()
    stage.core.settle()
    assert (stage.weight, stage.holders("m2")) == (5, stable)


def test_steps_are_taken_one_by_one_at_their_interval(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 100, steps=(5, 25), interval="10m")
    assert stage.weight == 5
    stage.pass_time(500)
    assert stage.weight == 5
    stage.pass_time(101)
    assert stage.weight == 25
    stage.take_over()
    stage.pass_time(500)
    assert stage.weight == 25
    stage.pass_time(101)
    assert (stage.weight, stage.said()[1]) == (100, Reason.WEIGHT_REACHED)


def test_C62_a_step_whose_time_lies_in_the_future_waits_one_interval_and_no_longer(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 100, steps=(5,), interval="10m")
    stage.world.clock.offset -= stage.world.clock.now() - stage.status.rollout.started_at.replace(
        year=2025
    )
    stage.take_over()
    stage.pass_time(590)
    assert stage.weight == 5
    stage.pass_time(20)
    assert stage.weight == 100


def test_C45_two_of_ten_then_back_then_another_canary_then_promotion_then_rollback():
    stage = Stage(nodes=10, copies=10)
    for name in ("m2", "m3"):
        stage.world.add_version(name)
    everywhere = stage.holders("m1")
    assert len(everywhere) == 10
    stage.wish("m1", "m2", 20, residency="Proportional")
    second = stage.holders("m2")
    assert (len(second), stage.weight) == (2, 20)
    assert stage.labelled() == {"uid-m1", "uid-m2"}
    stage.wish("m1", "m2", 0, residency="Proportional")
    assert (stage.weight, len(stage.holders("m2"))) == (0, 1)
    second &= stage.holders("m2")
    stage.wish("m1", "m3", 20, residency="Proportional")
    third = stage.holders("m3")
    assert (len(third), stage.weight) == (2, 20)
    assert stage.holders("m2", origin=EntryOrigin.HOLD) == second
    assert stage.labelled() == {"uid-m1", "uid-m3"}
    for node in everywhere - third:
        stage.world.states[node, "uid-m3"] = EntryState.DOWNLOADING
    stage.wish("m3")
    assert stage.holders("m3") == everywhere
    stage.pass_time(3700)
    assert stage.holders("m1", origin=EntryOrigin.HOLD) == everywhere
    stage.take_over()
    stage.wish("m1")
    assert stage.holders("m1", origin=EntryOrigin.PLACEMENT) == everywhere
    assert stage.status.copies.ready == 10
    assert stage.labelled() == {"uid-m1"}
    assert stage.holders("m3", origin=EntryOrigin.HOLD) == third


def test_promotion_holds_the_old_version_then_drops_it(stage):
    stage.world.add_version("m2")
    stable = stage.holders("m1")
    stage.wish("m1", "m2", 5)
    stage.wish("m2")
    assert stage.holders("m2") == stable
    assert stage.status.traffic is None
    assert stage.holders("m1", origin=EntryOrigin.HOLD) == stable
    held = stage.status.held[0]
    assert (held.uid, held.model_version, held.copies) == ("uid-m1", "m1", 2)
    assert held.digest is not None
    assert {ref.held_uids for ref in stage.refs().values()} == {("uid-m1",)}
    stage.take_over()
    stage.pass_time(3500)
    assert stage.holders("m1") == stable
    stage.pass_time(200)
    assert stage.holders("m1") == set()
    assert stage.status.held == ()
    told = stage.reasons()
    assert told.count(Reason.PROMOTED) == told.count(Reason.HELD) == 1
    assert told.count(Reason.HOLD_ENDED) == 1


def test_bytes_outlive_a_pruned_version_and_are_never_fetched(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 5)
    stable = stage.holders("m1")
    stage.world.hide(stage.world.cache.model_version_named(ObjectKey("search", "m1")))
    stage.wish("m2")
    stage.take_over()
    assert stage.holders("m1", origin=EntryOrigin.HOLD) == stable
    assert stage.status.held[0].model_version == "m1"
    lost = min(stable)
    stage.world.states[lost, "uid-m1"] = EntryState.EVICTED
    stage.core.settle()
    assert stage.holders("m1") == stable - {lost}


def test_pods_that_still_use_the_old_version_are_counted_and_keep_it(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 5)
    node = min(stage.holders("m1"))
    stage.world.mounts[node, "uid-m1"] = 2
    stage.core.settle()
    stage.wish("m2")
    assert stage.status.held[0].pods == 2
    stage.pass_time(3700)
    assert stage.holders("m1") == {node}
    stage.world.mounts.clear()
    stage.core.settle()
    assert stage.holders("m1") == set()


def test_what_pods_never_let_go_is_held_until_the_deadline_after_its_hold(stage):
    """The last copy too: the node's agent keeps the bytes of a pod's own version by itself."""
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 5)
    for node in stage.holders("m1"):
        stage.world.mounts[node, "uid-m1"] = 1
    stage.wish("m2", hold_for="1h", deadline="2h")
    nodes = stage.holders("m1")
    stage.pass_time(3700)
    stage.take_over()
    assert stage.holders("m1") == nodes
    stage.pass_time(7000)
    assert stage.holders("m1") == nodes
    stage.pass_time(300)
    assert stage.holders("m1") == set()
    assert stage.status.held == ()


def fill(stage, bytes_left: int) -> None:
    """Every node has room for stable and so much more."""
    stage.world.capacity = GIB + bytes_left
    stage.core.settle()


def test_a_canary_that_does_not_fit_is_told_with_the_arithmetic_and_stable_is_untouched(stage):
    before = {n.name: n.spec for n in stage.world.cache.cache_nodes()}
    fill(stage, GIB - 1)
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 5)
    assert (stage.weight, stage.said()) == (0, ("False", Reason.CANARY_DOES_NOT_FIT))
    assert {n.name: n.spec for n in stage.world.cache.cache_nodes()} == before
    condition = next(c for c in stage.status.conditions if c.type == Condition.ROLLOUT_PROGRESSING)
    assert "needs 1Gi beside" in condition.message
    assert stage.reasons().count(Reason.CANARY_DOES_NOT_FIT) == 1
    fill(stage, GIB)
    assert stage.weight == 5


def spoil(stage, trouble: str, reason: str) -> None:
    """What is wrong with the canary before anybody wishes for it."""
    if trouble == "room":
        fill(stage, GIB - 1)
    if trouble == "source":
        stage.world.sources.failures["m2"] = SourceError(Reason.SOURCE_NOT_FOUND, "it is gone")
    if trouble in {"copy", "moved"}:
        for node in stage.holders("m1"):
            stage.world.states[node, "uid-m2"] = EntryState.FAILED
            stage.world.reasons[node, "uid-m2"] = reason
    if trouble == "pods":
        stage.world.show(make_pod_view("p1", track="canary"))
    if trouble != "none":
        stage.world.add_version("m2")
        stage.core.settle()
    if trouble == "pin":
        view = stage.world.cache.model_version_named(ObjectKey("search", "m2"))
        pinned = view.spec.model_copy(update={"digest": digest("e")})
        stage.world.show(replace(view, spec=pinned, generation=2))


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        pytest.param("room", Reason.CANARY_DOES_NOT_FIT, id="it does not fit"),
        pytest.param("source", Reason.MODEL_VERSION_NOT_READY, id="C21 its source is gone"),
        pytest.param("pin", Reason.DIGEST_MISMATCH, id="C23 its digest contradicts the bytes"),
        pytest.param("copy", Reason.SOURCE_GONE, id="C21 its source vanishes while it is fetched"),
        pytest.param("moved", Reason.SOURCE_CHANGED, id="C06 it changes while it is fetched"),
        pytest.param("none", Reason.MODEL_VERSION_NOT_FOUND, id="there is no such version"),
        pytest.param("pods", Reason.CANARY_PODS_NOT_READY, id="its pods crash"),
        pytest.param("time", Reason.CANARY_EXPIRED, id="it is forgotten"),
    ],
)
def test_a_bad_canary_leaves_stable_untouched_and_has_one_reason(stage, trouble, reason):
    stable = stage.holders("m1")
    spoil(stage, trouble, reason)
    stage.wish("m1", "m2", 5, deadline="2h")
    stage.core.settle()
    if trouble == "time":
        stage.pass_time(7300)
    assert (stage.weight, stage.said()[1]) == (0, reason)
    assert stage.holders("m1", origin=EntryOrigin.PLACEMENT) == stable
    assert stage.status.copies.ready == 2
    ready = next(c for c in stage.status.conditions if c.type == Condition.READY)
    assert (ready.status, ready.reason) == ("True", Reason.CACHED)
    assert stage.reasons().count(reason) == 1


@pytest.mark.parametrize(("on_failure", "weight"), [("Hold", 25), ("Rollback", 0)])
def test_pods_that_crash_hold_the_weight_or_take_it_back(stage, on_failure, weight):
    stage.world.add_version("m2")
    pod = canary_pod(stage)
    stage.world.show(pod)
    stage.wish("m1", "m2", 25, on_failure=on_failure)
    assert stage.weight == 25
    stage.world.show(replace(pod, is_ready=False))
    stage.core.settle()
    assert (stage.weight, stage.said()) == (weight, ("False", Reason.CANARY_PODS_NOT_READY))
    stage.world.show(pod)
    stage.take_over()
    assert stage.weight == weight
    stage.wish("m1", "m2", 26, on_failure=on_failure)
    stage.pass_time(400)
    assert stage.weight == 26


def test_a_pod_that_is_being_deleted_neither_fails_the_canary_nor_keeps_it_waiting(stage):
    stage.world.add_version("m2")
    pods = [canary_pod(stage, name) for name in ("p1", "p2")]
    for pod in pods:
        stage.world.show(pod)
    stage.wish("m1", "m2", 5, interval="10s", on_failure="Rollback")
    stopped = {"is_ready": False, "is_cold": True, "warm_up_failure": "exit code 143"}
    stage.world.show(replace(pods[0], is_ready=False))
    stage.core.settle()
    stage.wish("m1", "m2", 50, interval="10s", on_failure="Rollback")
    stage.pass_time(11)
    assert (stage.weight, stage.said()[1]) == (5, Reason.CANARY_PODS_NOT_READY)
    stage.world.show(replace(pods[0], is_terminating=True, **stopped))
    stage.core.settle()
    assert (stage.weight, stage.said()[1]) == (50, Reason.WEIGHT_REACHED)
    assert Reason.CANARY_WARM_UP_FAILED not in stage.reasons()


def test_a_forgotten_canary_loses_its_traffic_and_its_protection_but_not_its_bytes(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 25, deadline="2h")
    stage.pass_time(7100)
    assert stage.weight == 25
    stage.take_over()
    stage.pass_time(200)
    assert (stage.weight, stage.said()) == (0, ("False", Reason.CANARY_EXPIRED))
    assert len(stage.holders("m2")) == 2
    for node in stage.world.cache.cache_nodes():
        for entry in node.spec.entries:
            assert entry.evictable or entry.uid == "uid-m1"
    assert stage.reasons().count(Reason.CANARY_EXPIRED) == 1
    stage.wish("m1", "m2", 30, deadline="2h")
    assert stage.weight == 30


def test_a_canary_in_place_of_one_that_has_ended_is_not_promised_the_room_of_what_is_held(stage):
    """The copies of the ended one may be given up, until they are held."""
    fill(stage, GIB)
    for name in ("m2", "m3"):
        stage.world.add_version(name)
    stage.wish("m1", "m2", 25, deadline="2h")
    stage.pass_time(7300)
    stage.wish("m1", "m3", 25, deadline="2h")
    assert stage.said()[1] == Reason.CANARY_DOES_NOT_FIT
    assert stage.holders("m3") == set()
    assert len(stage.holders("m2", origin=EntryOrigin.HOLD)) == 2
    stage.pass_time(3700)
    assert (stage.weight, stage.holders("m2")) == (25, set())


def test_new_and_lost_nodes_act_only_below_min_ready_while_a_rollout_is_under_way():
    stage = Stage(nodes=3, copies=3, min_ready=2)
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 25)
    stage.world.remove_node("n0")
    stage.add_node("n9")
    assert stage.holders("m1") == {"n1", "n2"}
    ready = next(c for c in stage.status.conditions if c.type == Condition.READY)
    assert (ready.status, ready.reason) == ("True", Reason.DEGRADED)
    assert Reason.ROLLOUT_UNDER_WAY in ready.message
    stage.world.remove_node("n1")
    stage.core.settle()
    assert stage.holders("m1") == stage.holders("m2") == {"n2", "n9"}
    stage.wish("m2")
    stage.add_node("n8")
    assert stage.holders("m2") == {"n2", "n9", "n8"}


def test_a_canary_whose_copies_are_all_lost_gets_no_traffic_even_under_hold(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 25)
    for node in stage.holders("m2"):
        stage.world.states[node, "uid-m2"] = EntryState.VERIFYING
    stage.core.settle()
    assert (stage.weight, stage.said()[1]) == (0, Reason.CANARY_LOADING)
    stage.world.states.clear()
    stage.core.settle()
    assert stage.weight == 25


def test_a_leader_that_dies_between_two_nodes_loses_no_held_copy(stage):
    """One node has been told of the promotion, the other has not."""
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 5)
    nodes = sorted(stage.holders("m1"))
    before = stage.world.cache.cache_node(NodeName(nodes[1])).spec
    stage.wish("m2")
    second = stage.world.cache.cache_node(NodeName(nodes[1]))
    stage.core.end()
    stage.world.show(replace(second, spec=before))
    stage.begin()
    assert stage.holders("m1", origin=EntryOrigin.HOLD) == set(nodes)
    assert stage.holders("m2", origin=EntryOrigin.PLACEMENT) == set(nodes)


def test_pods_that_show_the_last_canary_open_no_gate_for_the_next_one(stage):
    for name in ("m2", "m3"):
        stage.world.add_version(name)
    old = canary_pod(stage)
    stage.world.show(old)
    stage.wish("m1", "m2", 25)
    assert stage.weight == 25
    stage.wish("m1", "m3", 25, on_failure="Rollback")
    stage.take_over()
    assert (stage.weight, stage.said()) == (0, ("False", Reason.CANARY_PODS_NOT_READY))
    new = canary_pod(stage, "p2")
    stage.world.show(new)
    stage.core.settle()
    assert stage.weight == 0
    found = next(c for c in stage.status.conditions if c.type == Condition.ROLLOUT_PROGRESSING)
    assert "2 of 2 pods of the canary are Ready, and 1 of these show another" in found.message
    stage.world.hide(old)
    stage.core.settle()
    assert (stage.weight, stage.said()) == (25, ("True", Reason.WEIGHT_REACHED))


def test_a_pod_of_which_no_agent_tells_waits_until_one_does(stage):
    stage.world.add_version("m2")
    pod = canary_pod(stage)
    stage.world.shown[pod.uid] = Uid("unknown")
    stage.world.show(pod)
    stage.world.show(canary_pod(stage, "p2", node=None))
    stage.wish("m1", "m2", 5)
    assert (stage.weight, stage.said()[1]) == (0, Reason.CANARY_PODS_NOT_READY)
    stage.world.hide(canary_pod(stage, "p2", node=None))
    stage.core.settle()
    assert stage.weight == 0
    del stage.world.shown[pod.uid]
    stage.core.settle()
    assert stage.weight == 5


def test_a_pod_of_the_canary_on_another_node_is_brought_the_canary(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 5)
    (cold,) = {"n0", "n1", "n2"} - stage.holders("m1")
    stage.world.show(make_pod_view("p1", track="canary", node=NodeName(cold), is_ready=True))
    stage.core.settle()
    node = stage.world.cache.cache_node(NodeName(cold))
    assert [(e.uid, e.origin) for e in node.spec.entries] == [("uid-m2", EntryOrigin.DEMAND)]
    assert [(r.origin, r.canary_uid, r.canary_weight) for r in node.spec.caches] == [
        (EntryOrigin.HOLD, "uid-m2", 5)
    ]
    stage.take_over()
    assert stage.holders("m2", origin=EntryOrigin.DEMAND) == {cold}
    assert cold not in stage.holders("m1")


def test_C05_versions_with_equal_etags_are_told_apart_by_their_bytes(stage):
    """ETags prove nothing: each version is shown and labelled by its own digest."""
    stage.world.sources.etag = "the-same"
    for name in ("m2", "m3"):
        stage.world.add_version(name)
    stage.wish("m2", "m3", 5)
    views = [stage.world.cache.model_version_named(ObjectKey("search", n)) for n in ("m2", "m3")]
    assert len({view.status.source_digest for view in views}) == 1
    assert len({view.status.content_digest for view in views}) == 2
    assert len({track.node_label_key for track in stage.status.tracks}) == 2
    stage.wish("m3")
    assert stage.status.tracks[0].content_digest == views[1].status.content_digest


def test_C22_silent_damage_of_the_canary_holds_its_weight_and_of_all_copies_takes_it(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 25)
    first, second = sorted(stage.holders("m2"))
    for node, weight in ((first, 25), (second, 0)):
        stage.world.states[node, "uid-m2"] = EntryState.FAILED
        stage.world.reasons[node, "uid-m2"] = Reason.DAMAGED
        stage.core.settle()
        assert (stage.weight, stage.said()) == (weight, ("False", Reason.DAMAGED))
    assert stage.status.copies.ready == 2
    assert stage.reasons().count(Reason.DAMAGED) == 2


def test_C22_a_damaged_held_copy_is_let_go_and_not_fetched(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 25)
    stage.wish("m2")
    damaged = min(stage.holders("m1"))
    stage.world.states[damaged, "uid-m1"] = EntryState.FAILED
    stage.world.reasons[damaged, "uid-m1"] = Reason.DAMAGED
    stage.core.settle()
    assert damaged not in stage.holders("m1")
    assert stage.status.held[0].copies == 1


def test_a_canary_whose_version_is_being_resolved_is_no_warning(stage):
    stage.world.events.clear()
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 5)
    assert Reason.MODEL_VERSION_NOT_READY not in stage.reasons()
    assert stage.weight == 5


def test_a_canary_whose_version_cannot_be_resolved_is_one_warning(stage):
    stage.world.events.clear()
    stage.world.sources.failures["m3"] = SourceError(Reason.AUTH_FAILED, "wrong key")
    stage.world.add_version("m3")
    stage.wish("m1", "m3", 5)
    assert stage.reasons().count(Reason.MODEL_VERSION_NOT_READY) == 1


def test_C61_steps_that_were_missed_are_taken_one_at_a_time(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 100, steps=(5, 10, 25), interval="1m", deadline="24h")
    assert stage.weight == 5
    stage.core.end()
    stage.world.clock.seconds += 3 * 3600
    stage.world.renew_all()
    stage.begin()
    stage.pass_time(30)
    assert stage.weight == 10
    stage.pass_time(40)
    assert stage.weight == 25


def test_a_rollout_and_its_way_back_wait_for_no_other_reports(stage, monkeypatch):
    """However large the fleet is: what the canary's copies say is looked at soon, and first."""
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 25, on_failure="Rollback")
    everywhere = {node_key(NodeName(name)) for name in stage.holders("m2")}
    node = NodeName(min(stage.holders("m2")))
    monkeypatch.setattr(routing, "_REPORTS_A_SECOND", 0.001)
    queue, key = stage.core.queue, cache_key(C1)

    def report(**changes):
        seen = stage.world.cache.cache_node(node)
        entries = tuple(
            entry.model_copy(update=changes) if entry.uid == "uid-m2" else entry
            for entry in seen.status.entries
        )
        queue.urgent.clear()
        stage.world.show(replace(seen, status=seen.status.model_copy(update={"entries": entries})))
        assert key in queue.keys
        return key in queue.urgent

    assert not report(mounts=1)
    stage.world.states[node, "uid-m2"] = EntryState.FAILED
    assert report(state=EntryState.FAILED, reason="DigestMismatch")
    stage.core.settle()
    assert stage.weight == 0
    # The agents' nodes are written before all else that is due.
    assert everywhere <= queue.urgent


def test_a_user_who_takes_a_canary_back_is_heard_first(stage):
    stage.world.add_version("m2")
    stage.wish("m1", "m2", 25)
    everywhere = {node_key(NodeName(name)) for name in stage.holders("m2")}
    queue = stage.core.queue
    for canary, weight, is_back in (("m2", 30, False), ("m2", 10, True), (None, 0, True)):
        queue.urgent.clear()
        stage.wish("m1", canary, weight)
        assert (cache_key(C1) in queue.urgent) is is_back
        assert (everywhere <= queue.urgent) is is_back
