"""The leader's core as a whole, on a cluster in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from builders import GIB, digest, make_cache, make_node, make_version
from fakes.memory_core import MemoryCore, MemoryWorld
from modelcache_api.names import NODE_LABEL_PREFIX, Condition, EntryState, Reason
from modelcache_api.v1alpha1.cache_node import PeerStatus
from modelcache_operator import routing
from modelcache_operator.adapters.parsing import ObservedKind
from modelcache_operator.agents import Agents
from modelcache_operator.decide.liveness import Liveness, LivenessLimits
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelVersionView,
    NodeName,
    ObjectKey,
)
from modelcache_operator.keys import SWEEP, cache_key, node_key
from modelcache_operator.ports.sources import SourceError

C1, M1 = ObjectKey("search", "c1"), ObjectKey("search", "m1")


class Stage:
    def __init__(self, nodes: int = 3) -> None:
        self.world = MemoryWorld()
        for number in range(nodes):
            self.world.add_node(f"n{number}")
        self.core = MemoryCore(self.world)
        self.core.begin()

    def settle(self):
        self.core.settle()

    def cache(self, key=C1):
        return self.world.cache.model_cache(key)

    def version(self, key=M1):
        return self.world.cache.model_version_named(key)

    def ready(self, view):
        ready = next(c for c in view.status.conditions if c.type == Condition.READY)
        return ready.status, ready.reason

    def entries(self, name):
        found = self.world.cache.cache_node(NodeName(name))
        return {entry.uid for entry in found.spec.entries} if found else set()

    def holders(self, uid="uid-m1"):
        return {node.name for node in self.world.cache.nodes() if uid in self.entries(node.name)}

    def pass_time(self, seconds, *, silent=()):
        """Time goes by in steps of a lease list; agents renew but for the silent ones."""
        steps = max(1, int(seconds // 10))
        for _ in range(steps):
            self.world.clock.seconds += seconds / steps
            self.world.renew_all(but=silent)
            self.core.list_leases()
        self.settle()

    def run_down(self):
        """Both cached: a version and a cache of two copies."""
        self.world.add_version()
        self.world.add_cache(copies=2)
        self.settle()
        return self


@pytest.fixture
def stage():
    return Stage().run_down()


def test_a_version_is_resolved_placed_fetched_adopted_and_labelled(stage):
    assert stage.ready(stage.version()) == ("True", Reason.RESOLVED)
    assert stage.ready(stage.cache()) == ("True", Reason.CACHED)
    assert stage.cache().status.copies_summary == "2/2"
    assert len(stage.holders()) == 2
    status = stage.version().status
    assert status.content_digest is not None
    assert status.nodes.disk == 2
    node = stage.world.cache.cache_node(NodeName(next(iter(stage.holders()))))
    entry = node.spec.entries[0]
    assert (entry.content_digest, entry.label_key) == (status.content_digest, status.node_label_key)


def test_a_pin_that_contradicts_the_adopted_bytes_withdraws_every_copy(stage):
    version = stage.version()
    pinned = version.spec.model_copy(update={"digest": digest("e")})
    stage.world.show(replace(version, spec=pinned, generation=2))
    stage.settle()
    assert stage.ready(stage.version()) == ("False", Reason.DIGEST_MISMATCH)
    assert stage.ready(stage.cache()) == ("False", Reason.DIGEST_MISMATCH)
    assert stage.version().status.node_label_key is None
    assert stage.holders() == set()


def test_a_contradicted_version_does_not_replace_the_one_that_is_held(stage):
    before = stage.holders()
    stage.world.add_version("m2")
    stage.world.add_cache("c2", version="m2", copies=1)
    stage.settle()
    second = stage.version(ObjectKey("search", "m2"))
    pinned = second.spec.model_copy(update={"digest": digest("e")})
    stage.world.show(replace(second, spec=pinned, generation=2))
    stage.world.show(make_cache("c1", version="m2", copies=2, generation=2))
    stage.settle()
    assert stage.ready(stage.cache()) == ("False", Reason.DIGEST_MISMATCH)
    assert stage.holders() == before
    assert stage.holders("uid-m2") == set()


def obscure(stage, view):
    """A newer release has written something into the object that we do not know."""
    kinds = {ModelVersionView: ObservedKind.MODEL_VERSIONS, CacheNodeView: ObservedKind.CACHE_NODES}
    stage.world.obscure(kinds.get(type(view), ObservedKind.MODEL_CACHES), view)


def restart(stage):
    """Another leader, which knows nothing but what can be read."""
    stage.core.end()
    stage.world.writes.clear()
    stage.core = MemoryCore(stage.world)
    stage.core.begin()
    stage.core.router.look_at_everything()
    for _ in range(3):
        stage.core.queue.add(SWEEP)
        stage.settle()


def test_a_cache_node_that_cannot_be_read_is_not_written(stage):
    name = NodeName(min(stage.holders()))
    before = stage.world.cache.cache_node(name)
    obscure(stage, before)
    restart(stage)
    assert stage.world.cache.unreadable.cache_nodes == {name}
    assert stage.world.cache.cache_node(name) is None
    assert stage.world.writes["cache node deletion"] == 0


def test_a_cache_node_that_can_be_read_again_keeps_its_verified_copies(stage):
    name = NodeName(min(stage.holders()))
    before = stage.world.cache.cache_node(name)
    obscure(stage, before)
    restart(stage)
    assert len(stage.holders()) == 2  # a replacement was found meanwhile
    history = watch_entries(stage, name)
    stage.world.show(before)
    stage.settle()
    assert stage.core.memory.assignments.of(C1).nodes == stage.holders()
    assert len(stage.holders()) == 2
    assert history[0] == {"uid-m1"}


def watch_entries(stage, name):
    history = []

    def note(change):
        if getattr(change.new, "name", None) == name and hasattr(change.new, "spec"):
            history.append({entry.uid for entry in change.new.spec.entries})

    stage.world.cache.subscribe(note)
    return history


def accuse(stage, accuser, *uids):
    """What the accuser's agent says of other nodes in its status."""
    seen = stage.world.cache.cache_node(NodeName(accuser))
    peer = PeerStatus(address="10.0.0.9", port=9405, suspects=uids)
    stage.world.show(replace(seen, status=seen.status.model_copy(update={"peer": peer})))
    stage.settle()


def test_a_node_that_served_wrong_bytes_says_so_itself_until_nobody_does(stage):
    def suspicion():
        conditions = stage.world.cache.cache_node(NodeName("n0")).status.conditions
        return [c.message for c in conditions if c.type == Condition.PEER_SUSPECTED]

    def told():
        return [e.regarding.name for e in stage.world.events if e.reason == Reason.PEER_SUSPECTED]

    uid = stage.world.cache.node(NodeName("n0")).uid
    accuse(stage, "n1", uid)
    accuse(stage, "n2", uid)
    assert suspicion() == ["served wrong bytes to n1, n2: check the node's disk and memory"]
    restart(stage)
    assert told() == ["n0"], "one Event, whoever leads and however many say so"
    accuse(stage, "n1")
    accuse(stage, "n2")
    assert suspicion() == []
    accuse(stage, "n1", uid)
    assert told() == ["n0", "n0"]
    stage.world.remove_node("n1")
    stage.settle()
    assert suspicion() == []


def test_a_version_that_cannot_be_read_keeps_its_copies_and_manifests(stage):
    before, entries = stage.holders(), {}
    for name in before:
        entries[name] = stage.world.cache.cache_node(NodeName(name)).spec
    obscure(stage, stage.version())
    restart(stage)
    assert stage.holders() == before
    assert all(stage.world.cache.cache_node(NodeName(n)).spec == s for n, s in entries.items())
    assert stage.world.manifests.contents
    assert stage.ready(stage.cache()) == ("Unknown", Reason.MODEL_VERSION_NOT_READY)
    assert stage.cache().status.copies_summary == "2/2"


def test_a_version_that_cannot_be_read_still_takes_its_room(stage):
    free = stage.core.memory.books.all()[NodeName(min(stage.holders()))].booked_bytes
    obscure(stage, stage.version())
    restart(stage)
    books = stage.core.memory.books.all()
    assert {books[NodeName(name)].booked_bytes for name in stage.holders()} == {free}


def test_a_cache_that_cannot_be_read_keeps_its_copies(stage):
    before = stage.holders()
    obscure(stage, stage.cache())
    restart(stage)
    assert stage.holders() == before
    assert not stage.world.writes


def test_257_caches_of_one_version_leave_the_last_one_out_and_block_nobody():
    stage = Stage(nodes=1)
    stage.world.add_version()
    for number in range(257):
        stage.world.add_cache(f"c{number:03}", copies="All")
    stage.settle()
    told = Counter(stage.ready(cache)[1] for cache in stage.world.cache.model_caches())
    assert told == {Reason.CACHED: 256, Reason.TOO_MANY_MODELS: 1}
    stage.world.hide(next(iter(stage.world.cache.model_caches())))
    stage.settle()
    told = Counter(stage.ready(cache)[1] for cache in stage.world.cache.model_caches())
    assert told == {Reason.CACHED: 256}


def test_lists_that_are_far_apart_still_find_the_dead():
    world = MemoryWorld()
    for name in ("n0", "n1"):
        world.add_node(name)
    agents = Agents(world.cache, world.clock, LivenessLimits.of(300, 40))
    for _ in range(10):
        agents.note(world.leases.values())
        world.clock.seconds += 40
        world.renew("n0")
    assert (agents.liveness(NodeName("n0")), agents.liveness(NodeName("n1"))) == (
        Liveness.ALIVE,
        Liveness.LOST,
    )


def test_a_larger_version_leaves_a_node_without_room_for_one_that_has_it():
    stage = Stage(nodes=1)
    stage.world.add_version("big", size_bytes=90 * GIB, resolved=True)
    stage.world.add_version("small")
    stage.world.add_version("large", size_bytes=50 * GIB, resolved=True)
    stage.world.add_cache("c0", version="big", copies=1)
    stage.world.add_cache("c1", version="small", copies=1)
    stage.settle()
    stage.world.add_node("n1")
    stage.core.list_leases()
    stage.settle()
    stage.world.show(make_cache("c1", version="large", copies=1, generation=2))
    stage.settle()
    assert stage.holders("uid-large") == {"n1"}
    assert stage.ready(stage.cache()) == ("True", Reason.CACHED)


def test_a_copy_that_its_node_cannot_take_moves_after_a_while_and_never_back(stage):
    failing = min(stage.holders())
    stage.world.reasons[failing, "uid-m1"] = Reason.INSUFFICIENT_SPACE
    stage.world.states[failing, "uid-m1"] = EntryState.FAILED
    stage.core.router.look_at_everything()
    stage.settle()
    assert failing in stage.holders()
    stage.pass_time(130)
    stage.core.router.look_at_everything()
    stage.settle()
    assert failing not in stage.holders()
    assert stage.cache().status.copies_summary == "2/2"
    for other in stage.holders():
        stage.world.states[other, "uid-m1"] = EntryState.FAILED
        stage.world.reasons[other, "uid-m1"] = Reason.INSUFFICIENT_SPACE
    before = stage.holders()
    for _ in range(5):
        stage.pass_time(300)
        stage.core.router.look_at_everything()
        stage.settle()
    assert stage.holders() == before


def test_a_lost_list_of_files_is_made_again_if_the_source_is_the_same(stage):
    kept = dict(stage.world.manifests.sources)
    stage.world.manifests.sources.clear()
    stage.core.resolver.look_for_source(stage.version())
    stage.settle()
    assert stage.world.manifests.sources == kept
    assert stage.ready(stage.version()) == ("True", Reason.RESOLVED)


def test_a_lost_list_is_asked_for_at_the_commit_that_was_resolved(stage):
    stage.world.sources.revision = commit = "0a" * 20
    stage.world.add_version("hub")
    stage.settle()
    resolved = stage.world.cache.model_version_named(ObjectKey("search", "hub"))
    assert resolved.status.source_revision == commit
    stage.world.manifests.sources.clear()
    stage.world.sources.revision = "0b" * 20
    stage.world.sources.asked.clear()
    stage.core.resolver.look_for_source(resolved)
    stage.settle()
    assert stage.world.sources.asked == [commit]
    assert stage.world.manifests.sources[resolved.uid].revision == commit


def test_a_lost_list_of_a_source_that_has_changed_is_told_and_takes_nothing_away(stage):
    before, known = stage.holders(), stage.version().status.source_digest
    stage.world.manifests.sources.clear()
    stage.world.sources.failures["m1"] = SourceError(
        Reason.ENDPOINT_UNREACHABLE, "away", retry_after_seconds=1
    )
    stage.core.resolver.look_for_source(stage.version())
    stage.settle()
    assert stage.ready(stage.version()) == ("False", Reason.ENDPOINT_UNREACHABLE)
    del stage.world.sources.failures["m1"]
    stage.world.sources.etag = "changed"
    stage.world.clock.seconds += 9
    stage.core.resolver.look_for_source(stage.version())
    stage.settle()
    assert stage.ready(stage.version()) == ("False", Reason.SOURCE_CHANGED)
    assert stage.version().status.source_digest == known
    assert not stage.world.manifests.sources
    assert stage.holders() == before


def test_nothing_is_written_when_nothing_changes(stage):
    stage.world.writes.clear()
    stage.core.router.look_at_everything()
    stage.pass_time(600)
    assert not stage.world.writes


def test_the_source_is_listed_once_however_often_the_version_is_looked_at(stage):
    stage.core.router.look_at_everything()
    stage.settle()
    assert stage.world.sources.listed == ["m1"]


def test_C37_a_new_leader_finds_the_assignments_and_moves_nothing(stage):
    before = stage.holders()
    stage.core.end()
    stage.world.writes.clear()
    stage.world.add_node("n9")
    second = MemoryCore(stage.world)
    second.begin()
    assert stage.holders() == before
    assert stage.world.writes.keys() <= {"cache node", "node condition"}
    assert stage.world.writes["cache node"] == 1  # the new node's


def test_C37_what_happened_without_a_leader_is_found(stage):
    stage.core.end()
    stage.world.hide(stage.cache())
    MemoryCore(stage.world).begin()
    assert stage.holders() == set()


def test_C34_the_entries_go_with_the_cache(stage):
    stage.world.hide(stage.cache())
    stage.settle()
    assert stage.holders() == set()
    assert stage.version().status.nodes.disk == 0


def test_C42_a_cache_that_is_being_deleted_is_not_built_up_again(stage):
    stage.world.show(make_cache("c1", copies=2, is_deleted=True))
    stage.settle()
    assert stage.holders() == set()


def test_C36_a_node_that_is_removed_is_replaced_and_cleaned_up(stage):
    gone = min(stage.holders())
    stage.world.remove_node(gone)
    stage.settle()
    assert len(stage.holders()) == 2
    assert stage.ready(stage.cache()) == ("True", Reason.CACHED)
    assert stage.world.cache.cache_node(NodeName(gone)) is None


def test_C36_without_a_replacement_the_cache_is_degraded_not_failed():
    stage = Stage(nodes=2).run_down()
    stage.world.remove_node("n0")
    stage.settle()
    assert stage.ready(stage.cache()) == ("True", Reason.DEGRADED)
    stalled = [c for c in stage.cache().status.conditions if c.type == Condition.STALLED]
    assert stalled[0].status == "False"


def test_a_silent_agent_loses_its_labels_and_its_copies_are_placed_elsewhere(stage):
    lost = min(stage.holders())
    key = stage.version().status.node_label_key
    stage.world.show(make_node(lost, labels={key: "disk", "pool": "gpu"}))
    stage.pass_time(200, silent=[lost])
    assert stage.world.writes["label removal"] == 0
    stage.pass_time(200, silent=[lost])
    assert stage.world.cache.node(NodeName(lost)).labels == {"pool": "gpu"}
    assert stage.ready(stage.world.cache.cache_node(NodeName(lost))) == (
        "False",
        Reason.NODE_LOST,
    )
    assert len(stage.holders()) == 3
    assert lost in stage.holders()
    assert stage.cache().status.copies_summary == "2/2"


def test_a_node_that_comes_back_is_taken_in_again_and_the_surplus_goes(stage):
    lost = min(stage.holders())
    stage.pass_time(400, silent=[lost])
    stage.pass_time(20)
    assert len(stage.holders()) == 2
    assert stage.ready(stage.world.cache.cache_node(NodeName(lost))) == (
        "True",
        Reason.AGENT_ALIVE,
    )


def test_C40_labels_of_an_agent_that_came_back_after_the_last_list_stay(stage):
    name = NodeName(min(stage.holders()))
    key = stage.version().status.node_label_key
    stage.pass_time(400, silent=[name])
    stage.world.renew(name)
    stage.world.show(make_node(name, labels={key: "disk"}))
    stage.settle()
    assert stage.world.cache.node(name).labels == {key: "disk"}
    assert stage.world.writes["label removal"] == 0
    # What is believed of it has changed, though no list has said so.
    assert stage.ready(stage.world.cache.cache_node(name)) == ("True", Reason.AGENT_ALIVE)
    assert len(stage.holders()) == 2


def test_a_new_leader_does_not_take_the_dead_for_alive(stage):
    lost = min(stage.holders())
    stage.pass_time(400, silent=[lost])
    stage.core.end()
    stage.world.writes.clear()
    MemoryCore(stage.world).begin()
    assert not stage.world.writes


def test_an_api_server_that_is_away_makes_nobody_lost(stage):
    stage.world.clock.seconds += 900
    stage.core.list_leases()
    stage.settle()
    assert all(
        stage.ready(node) == ("True", Reason.AGENT_ALIVE)
        for node in stage.world.cache.cache_nodes()
    )


def test_C43_a_cache_whose_version_never_worked_can_go():
    stage = Stage()
    stage.world.sources.failures["m1"] = SourceError(Reason.SECRET_NOT_FOUND, "no Secret")
    stage.run_down()
    assert stage.ready(stage.cache()) == ("False", Reason.MODEL_VERSION_NOT_READY)
    stage.world.hide(stage.cache())
    stage.world.hide(stage.version())
    stage.settle()
    assert stage.holders() == set()


def test_a_failed_resolution_is_tried_again_with_patience():
    stage = Stage()
    stage.world.sources.failures["m1"] = SourceError(Reason.SOURCE_NOT_FOUND, "no bucket")
    stage.run_down()
    assert stage.ready(stage.version()) == ("False", Reason.SOURCE_NOT_FOUND)
    stage.core.router.look_at_everything()
    stage.settle()
    assert stage.world.sources.listed == ["m1"]
    del stage.world.sources.failures["m1"]
    stage.world.clock.seconds += 61
    stage.core.router.look_at_everything()
    stage.settle()
    assert stage.ready(stage.cache()) == ("True", Reason.CACHED)


def test_a_corrected_spec_is_tried_at_once():
    stage = Stage()
    stage.world.sources.failures["m1"] = SourceError(Reason.AUTH_FAILED, "wrong key")
    stage.run_down()
    del stage.world.sources.failures["m1"]
    stage.world.show(make_version("m1", uid="uid-m1", resolved=False, generation=2))
    stage.settle()
    assert stage.ready(stage.version()) == ("True", Reason.RESOLVED)


def test_a_new_leader_lets_an_old_refusal_stand_until_it_knows_better():
    stage = Stage()
    stage.world.sources.failures["m1"] = SourceError(Reason.SOURCE_NOT_FOUND, "no bucket")
    stage.run_down()
    stage.core.end()
    stage.world.writes.clear()
    MemoryCore(stage.world).begin()
    assert not stage.world.writes
    assert stage.world.sources.listed == ["m1", "m1"]


def test_a_version_that_vanishes_is_held_for_a_while_and_another_takes_its_place(stage):
    before = stage.holders()
    stage.world.hide(stage.version())
    stage.settle()
    assert stage.ready(stage.cache()) == ("False", Reason.MODEL_VERSION_NOT_FOUND)
    assert stage.holders() == before
    stage.pass_time(3700)
    stage.core.router.look_at_everything()
    stage.settle()
    assert stage.holders() == set()
    stage.world.add_version("m1", uid="uid-again")
    stage.settle()
    assert stage.ready(stage.cache()) == ("True", Reason.CACHED)
    assert len(stage.holders("uid-again")) == 2


def test_a_new_version_replaces_the_old_one_on_the_same_nodes_once_it_is_resolved(stage):
    before = stage.holders()
    stage.world.sources.failures["m2"] = SourceError(
        Reason.THROTTLED, "wait", retry_after_seconds=9
    )
    stage.world.add_version("m2")
    stage.world.show(make_cache("c1", version="m2", copies=2, generation=2))
    stage.settle()
    assert stage.holders() == before
    assert stage.ready(stage.cache()) == ("False", Reason.MODEL_VERSION_NOT_READY)
    del stage.world.sources.failures["m2"]
    stage.world.clock.seconds += 10
    stage.core.router.look_at_everything()
    stage.settle()
    assert stage.holders("uid-m2") == stage.holders() == before
    assert stage.cache().status.held[0].uid == "uid-m1"
    stage.pass_time(3700)
    stage.core.router.look_at_everything()
    stage.settle()
    assert stage.holders() == set()


def test_C41_one_failed_one_loading_one_cached_is_told_as_it_is():
    stage = Stage()
    stage.world.states[("n0", "uid-m1")] = EntryState.FAILED
    stage.world.states[("n1", "uid-m1")] = EntryState.DOWNLOADING
    stage.world.add_version()
    stage.world.add_cache(copies=3)
    stage.settle()
    status = stage.cache().status
    assert status.copies_summary == "1/3"
    assert (status.copies.failed, status.failures[0].reason) == (1, "NotAModel")
    assert stage.ready(stage.cache()) == ("True", Reason.DEGRADED)


def test_C22_damage_on_a_node_is_one_event_and_ends_with_its_repair(stage):
    holder = min(stage.holders())

    def report(state, reason):
        stage.world.states[(holder, "uid-m1")] = state
        stage.world.reasons[(holder, "uid-m1")] = reason
        stage.settle()
        return stage.ready(stage.world.cache.cache_node(NodeName(holder)))

    stage.world.events.clear()
    for state in (EntryState.VERIFYING, EntryState.PENDING, EntryState.DOWNLOADING):
        assert report(state, Reason.DAMAGED) == ("True", Reason.DAMAGED)
    damaged = [note for note in stage.world.events if note.reason == Reason.DAMAGED]
    assert [(note.regarding.name, note.is_warning) for note in damaged] == [(holder, True)]
    assert report(EntryState.CACHED, Reason.CACHED) == ("True", Reason.AGENT_ALIVE)


def test_an_evicted_copy_is_placed_nowhere_else(stage):
    holder = min(stage.holders())
    stage.world.states[(holder, "uid-m1")] = EntryState.EVICTED
    before = stage.holders()
    stage.core.router.look_at_everything()
    stage.settle()
    assert stage.holders() == before
    assert stage.ready(stage.cache()) == ("True", Reason.EVICTED)


def test_a_shortage_ends_when_a_node_with_room_appears():
    stage = Stage(nodes=1).run_down()
    assert stage.ready(stage.cache()) == ("True", Reason.DEGRADED)
    stage.world.add_node("n1")
    stage.core.list_leases()
    stage.settle()
    assert stage.ready(stage.cache()) == ("True", Reason.CACHED)


def test_room_given_up_by_one_cache_is_taken_by_another_that_waits():
    stage = Stage(nodes=1)
    for number in range(100):
        stage.world.add_version(f"m{number}")
        stage.world.add_cache(f"c{number}", version=f"m{number}", copies=1)
    stage.settle()
    full = [cache for cache in stage.world.cache.model_caches() if cache.status.copies.ready]
    assert len(full) == 64
    stage.world.hide(full[0])
    stage.settle()
    ready = [cache for cache in stage.world.cache.model_caches() if cache.status.copies.ready]
    assert len(ready) == 64


def test_two_caches_of_one_version_share_bytes_and_either_may_go(stage):
    stage.world.add_cache("c2", copies=2)
    stage.settle()
    assert len(stage.holders()) == 2
    stage.world.hide(stage.cache())
    stage.settle()
    assert len(stage.holders()) == 2


def test_a_rebuilt_node_starts_clean_and_gets_its_copy_again(stage):
    name = min(stage.holders())
    old = stage.world.cache.cache_node(NodeName(name))
    stage.world.remove_node(name)
    stage.world.show(replace(make_node(name), uid="rebuilt"))
    stage.world.renew(name)
    stage.core.list_leases()
    stage.settle()
    new = stage.world.cache.cache_node(NodeName(name))
    assert new.spec.node_uid == "rebuilt"
    assert new.uid != old.uid


def test_a_cache_node_that_somebody_deletes_or_edits_is_repaired(stage):
    before = stage.holders()
    name = NodeName(min(before))
    stage.world.hide(stage.world.cache.cache_node(name))
    stage.settle()
    assert stage.holders() == before
    seen = stage.world.cache.cache_node(name)
    stage.world.show(replace(seen, spec=seen.spec.model_copy(update={"entries": ()})))
    stage.settle()
    assert stage.holders() == before


def test_manifests_of_versions_that_are_gone_are_swept_up(stage):
    stage.world.hide(stage.cache())
    stage.world.hide(stage.version())
    for _ in range(2):
        stage.core.queue.add(SWEEP)
        stage.settle()
    assert not stage.world.manifests.sources
    assert not stage.world.manifests.contents


def test_a_node_without_an_agent_shows_as_such_and_carries_no_label_of_ours():
    stage = Stage(nodes=0)
    stage.world.add_node("n0", agent=False, labels={"cache.modelcache.io/x-1": "disk"})
    stage.run_down()
    assert stage.ready(stage.cache()) == ("False", Reason.AGENTS_NOT_RUNNING)
    assert stage.world.cache.node(NodeName("n0")).labels == {}
    assert stage.world.cache.cache_node(NodeName("n0")) is None


def test_heartbeats_of_nodes_cause_no_work(stage):
    stage.core.runs.clear()
    for name in ("n0", "n1", "n2"):
        stage.world.show(stage.world.cache.node(NodeName(name)))
    stage.settle()
    assert not stage.core.runs


def test_a_large_cluster_converges_with_a_bounded_number_of_writes():
    stage = Stage(nodes=200)
    for number in range(50):
        stage.world.add_version(f"m{number}")
        stage.world.add_cache(f"c{number}", version=f"m{number}", copies=4)
    stage.settle()
    assert all(cache.status.copies_summary == "4/4" for cache in stage.world.cache.model_caches())
    writes = stage.world.writes
    assert writes["version status"] <= 50 * 4
    assert writes["cache status"] <= 50 * 5
    assert writes["cache node"] <= 200 + 50 * 4 * 4
    assert GIB


def test_C40_what_many_nodes_report_of_a_ready_cache_is_looked_at_less_often(stage, monkeypatch):
    monkeypatch.setattr(routing, "_REPORTS_A_SECOND", 1)
    key = cache_key(C1)
    name = NodeName(min(stage.holders()))
    stage.core.queue.later.clear()
    seen = stage.world.cache.cache_node(name)
    entries = tuple(entry.model_copy(update={"mounts": 1}) for entry in seen.status.entries)
    status = seen.status.model_copy(update={"entries": entries})
    stage.world.show(replace(seen, status=status))
    assert stage.core.queue.later[key] == 2


def test_C40_reports_are_looked_at_less_often_where_there_are_many_caches(stage, monkeypatch):
    for number in range(3):
        stage.world.add_version(f"x{number}")
        stage.world.add_cache(f"x{number}", version=f"x{number}", copies=1)
    stage.settle()
    monkeypatch.setattr(routing, "_LOOKS_A_SECOND", 1)
    name = NodeName(min(stage.holders()))
    stage.core.queue.later.clear()
    seen = stage.world.cache.cache_node(name)
    entries = tuple(entry.model_copy(update={"mounts": 1}) for entry in seen.status.entries)
    status = seen.status.model_copy(update={"entries": entries})
    stage.world.show(replace(seen, status=status))
    assert stage.core.queue.later[cache_key(C1)] == 4


def report(stage, name, **changes):
    """The node's agent says something else of its only entry."""
    seen = stage.world.cache.cache_node(NodeName(name))
    entries = tuple(entry.model_copy(update=changes) for entry in seen.status.entries)
    status = seen.status.model_copy(update={"entries": entries})
    stage.core.queue.urgent.clear()
    stage.world.show(replace(seen, status=status))


@pytest.mark.parametrize(
    "loss",
    [
        {"state": EntryState.FAILED, "reason": "DigestMismatch"},
        {"state": EntryState.VERIFYING},
        {"state": EntryState.EVICTED},
        {"content_digest": digest("e")},
        {"tier": None},
    ],
    ids="-".join,
)
def test_C40_a_copy_that_is_lost_waits_for_no_other_report(stage, monkeypatch, loss):
    monkeypatch.setattr(routing, "_REPORTS_A_SECOND", 1)
    report(stage, min(stage.holders()), **loss)
    assert cache_key(C1) in stage.core.queue.keys
    # Where no traffic can go back it takes its turn: a store that is away loses copies everywhere.
    assert cache_key(C1) not in stage.core.queue.urgent


def test_C40_no_report_waits_for_others_for_ever(stage, monkeypatch):
    monkeypatch.setattr(routing, "_REPORTS_A_SECOND", 0.001)
    stage.core.queue.later.clear()
    report(stage, min(stage.holders()), mounts=1)
    assert stage.core.queue.later[cache_key(C1)] == 10
    stage.core.runs.clear()
    stage.settle()
    assert stage.core.runs["cache"] == 1
    assert not stage.core.queue.later


def test_what_a_living_agent_labels_is_no_reason_to_look_at_its_node(stage):
    name = NodeName(min(stage.holders()))
    node = stage.world.cache.node(name)
    labels = {**node.labels, f"{NODE_LABEL_PREFIX}m2": "disk"}
    stage.core.runs.clear()
    stage.world.show(replace(node, labels=labels))
    stage.settle()
    assert not stage.core.runs


def test_that_a_node_is_lost_is_looked_at_as_soon_as_ever(stage, monkeypatch):
    monkeypatch.setattr(routing, "_REPORTS_A_SECOND", 1)
    stage.core.queue.later.clear()
    stage.core.router.on_liveness(stage.holders())
    assert cache_key(C1) in stage.core.queue.keys


def of_all_nodes(nodes=4):
    """A ModelCache on all nodes, which all have it."""
    stage = Stage(nodes)
    stage.world.add_version()
    stage.world.add_cache(copies="All")
    stage.settle()
    assert stage.cache().status.copies_summary == f"{nodes}/{nodes}"
    return stage


def test_C40_who_is_on_all_nodes_is_looked_at_for_new_nodes_and_not_for_room():
    stage = of_all_nodes()
    stage.core.runs.clear()
    seen = stage.world.cache.cache_node(NodeName("n0"))
    disk = seen.status.tiers[0].model_copy(update={"pending_release_bytes": 1})
    tiers = (disk, *seen.status.tiers[1:])
    stage.world.show(replace(seen, status=seen.status.model_copy(update={"tiers": tiers})))
    stage.core.router.look_at_unsatisfied()
    assert cache_key(C1) not in {*stage.core.queue.keys, *stage.core.queue.later}
    stage.settle()
    stage.world.add_node("n4")
    stage.core.list_leases()
    stage.settle()
    assert stage.cache().status.copies_summary == "5/5"


def test_C40_a_node_that_begins_to_match_gets_its_copy_of_what_is_on_all():
    stage = Stage(2)
    stage.world.add_node("n2", labels={"pool": "gpu"})
    stage.core.list_leases()
    stage.world.add_version()
    stage.world.add_cache(copies="All", node_selector={"pool": "gpu"})
    stage.settle()
    assert stage.holders() == {"n2"}
    node = stage.world.cache.node(NodeName("n0"))
    stage.world.show(replace(node, labels={**node.labels, "pool": "gpu"}))
    stage.settle()
    assert stage.holders() == {"n0", "n2"}


def evictable(stage, uid="uid-m1"):
    nodes = stage.world.cache.cache_nodes()
    return {node.name for node in nodes if (one := node.spec.find_entry(uid)) and one.evictable}


def filling(nodes=6, capacity=100 * GIB):
    """A ModelCache on all nodes, of which half have it."""
    stage = Stage(nodes)
    stage.world.capacity = capacity
    stage.world.add_version()
    for number in range(nodes // 2, nodes):
        stage.world.states[f"n{number}", "uid-m1"] = EntryState.DOWNLOADING
    stage.world.add_cache(copies="All")
    stage.settle()
    assert stage.cache().status.copies_summary == f"{nodes // 2}/{nodes}"
    return stage


def test_C40_nodes_are_written_once_for_what_may_be_given_up_while_a_fleet_fills():
    stage = filling()
    assert evictable(stage) == set()
    before = stage.world.writes["cache node"]
    stage.world.states.clear()
    stage.settle()
    assert len(evictable(stage)) == 5
    assert stage.world.writes["cache node"] - before == 5


def test_what_may_be_given_up_is_told_in_time_though_copies_come_for_hours():
    stage = filling()
    assert 0 < stage.core.asked_again[cache_key(C1)] <= 120
    stage.world.clock.seconds += 121
    stage.core.queue.add(cache_key(C1))
    stage.settle()
    assert len(evictable(stage)) == 2


def both_filling(nodes=6):
    """Two ModelCaches on the same nodes, half of which have them."""
    stage = filling(nodes)
    stage.world.add_version("m2")
    for number in range(nodes // 2, nodes):
        stage.world.states[f"n{number}", "uid-m2"] = EntryState.DOWNLOADING
    stage.world.add_cache("c2", version="m2", copies="All")
    stage.settle()
    return stage


def has_come(stage, uid):
    stage.world.states = {at: one for at, one in stage.world.states.items() if at[1] != uid}
    stage.settle()


def test_C40_who_is_complete_waits_for_the_others_that_fill_the_same_nodes():
    stage = both_filling()
    has_come(stage, "uid-m1")
    assert stage.cache().status.copies_summary == "6/6"
    assert evictable(stage) == set()
    before = stage.world.writes["cache node"]
    has_come(stage, "uid-m2")
    assert len(evictable(stage)) == len(evictable(stage, "uid-m2")) == 5
    assert stage.world.writes["cache node"] - before == 6


def test_who_is_complete_does_not_wait_for_others_for_ever():
    stage = both_filling()
    has_come(stage, "uid-m1")
    assert 0 < stage.core.asked_again[cache_key(C1)] <= 120
    stage.world.clock.seconds += 121
    stage.core.queue.add(cache_key(C1))
    stage.settle()
    assert len(evictable(stage)) == 5


C2, C3 = ObjectKey("search", "c2"), ObjectKey("search", "c3")


def filling_apart(*coming):
    """A ModelCache on the nodes a, which have room for one model; more follow on the nodes b."""
    stage = Stage(0)
    stage.world.capacity = GIB + GIB // 2
    for name in ("a0", "a1", "a2", "b0", "b1", "b2"):
        stage.world.add_node(name, labels={"pool": name[0]})
    stage.core.list_leases()
    for number in (1, 2, 3):
        stage.world.add_version(f"m{number}")
    for name in coming or ("a2",):
        stage.world.states[name, "uid-m1"] = EntryState.DOWNLOADING
    stage.world.states["b2", "uid-m3"] = EntryState.DOWNLOADING
    stage.world.add_cache(copies="All", node_selector={"pool": "a"})
    stage.settle()
    return stage


def fill_the_others(stage):
    stage.world.add_cache("c3", version="m3", copies="All", node_selector={"pool": "b"})
    stage.settle()
    assert C3 in stage.core.memory.withheld


def test_each_that_waits_has_two_minutes_of_its_own():
    stage = filling_apart()
    stage.world.clock.seconds += 60
    fill_the_others(stage)
    has_come(stage, "uid-m1")
    for seconds, told in ((30, 0), (31, 2)):
        stage.world.clock.seconds += seconds
        stage.core.queue.add(cache_key(C1))
        stage.settle()
        assert len(evictable(stage)) == told
    assert stage.core.memory.withheld.keys() == {C3}


def test_nobody_waits_for_one_that_should_have_been_looked_at():
    stage = filling_apart("a0", "a1", "a2")
    fill_the_others(stage)
    stage.world.clock.seconds += 60
    has_come(stage, "uid-m1")
    assert evictable(stage) == set()
    stage.world.clock.seconds += 61
    stage.core.queue.add(cache_key(C1))
    stage.settle()
    assert len(evictable(stage)) == 2


def test_who_lacked_room_before_gets_it_soon_after_another_is_complete():
    stage = filling_apart("a0", "a1", "a2")
    stage.world.add_cache("c2", version="m2", copies=1, node_selector={"pool": "a"})
    stage.settle()
    assert stage.core.memory.unsatisfied == {C2}
    fill_the_others(stage)
    stage.world.clock.seconds = 13.0
    has_come(stage, "uid-m1")
    assert evictable(stage) == set()
    for seconds, told in ((6.0, 0), (1.0, 1)):
        stage.world.clock.seconds += seconds
        stage.core.queue.add(cache_key(C1))
        stage.settle()
        assert len(stage.holders("uid-m2")) == told
    assert C3 in stage.core.memory.withheld


def test_an_agent_that_lacked_room_before_is_told_at_once_and_no_other():
    stage = filling_apart("a0", "a1", "a2")
    stage.world.show(press(stage, "a0"))
    stage.settle()
    fill_the_others(stage)
    has_come(stage, "uid-m1")
    assert evictable(stage) == {"a0"}
    assert evictable(stage, "uid-m3") == set()


def test_an_agent_that_comes_to_lack_room_is_told_at_once():
    stage = filling_apart()
    fill_the_others(stage)
    has_come(stage, "uid-m1")
    assert evictable(stage) == set()
    stage.world.show(press(stage, "a0"))
    stage.settle()
    assert len(evictable(stage)) == 2
    assert evictable(stage, "uid-m3") == set()


def press(stage, name):
    seen = stage.world.cache.cache_node(NodeName(name))
    pressed = seen.status.tiers[0].model_copy(update={"pressure": "nearly full"})
    tiers = (pressed, *seen.status.tiers[1:])
    stage.world.pressure[name] = "nearly full"
    return replace(seen, status=seen.status.model_copy(update={"tiers": tiers}))


@pytest.mark.parametrize("trouble", ["gone", "unreadable"])
def test_nobody_waits_for_one_whose_version_is_no_more(trouble):
    stage = filling_apart()
    fill_the_others(stage)
    has_come(stage, "uid-m1")
    assert evictable(stage) == set()
    version = stage.version(ObjectKey("search", "m3"))
    if trouble == "gone":
        stage.world.hide(version)
    else:
        obscure(stage, version)
    stage.settle()
    assert len(evictable(stage)) == 2


def test_nobody_waits_for_one_that_has_gone():
    stage = both_filling()
    has_come(stage, "uid-m1")
    stage.world.hide(stage.cache(ObjectKey("search", "c2")))
    stage.settle()
    assert len(evictable(stage)) == 5


def test_what_may_be_given_up_is_told_at_once_when_another_lacks_room():
    stage = filling(capacity=GIB)
    stage.world.add_version("m2")
    stage.world.add_cache("c2", version="m2")
    stage.settle()
    assert len(evictable(stage)) == 2
    assert len(stage.holders("uid-m2")) == 1


def test_C40_who_lacks_room_for_good_does_not_end_that_what_comes_is_told_together():
    stage = Stage(6)
    stage.world.add_version("m2")
    stage.world.add_cache("c2", version="m2", copies=7)
    stage.settle()
    stage.world.add_version()
    for number in range(3, 6):
        stage.world.states[f"n{number}", "uid-m1"] = EntryState.DOWNLOADING
    stage.world.add_cache(copies="All")
    stage.settle()
    assert stage.core.memory.unsatisfied == {ObjectKey("search", "c2")}
    assert evictable(stage) == set()


def test_what_may_be_given_up_is_told_at_once_where_an_agent_lacks_room():
    stage = filling()
    stage.world.show(press(stage, "n0"))
    stage.settle()
    assert len(evictable(stage)) == 2


def test_who_lacks_room_is_looked_at_when_a_node_is_told_what_it_may_give_up(stage):
    seen = stage.world.cache.cache_node(NodeName(min(stage.holders() - evictable(stage))))
    stage.core.memory.unsatisfied.add(C1)
    free = tuple(one.model_copy(update={"evictable": True}) for one in seen.spec.entries)
    assert free != seen.spec.entries
    stage.core.queue.keys.clear()
    spec = seen.spec.model_copy(update={"entries": free})
    stage.world.show(replace(seen, spec=spec))
    assert cache_key(C1) in stage.core.queue.keys


def test_nodes_are_told_first_which_version_takes_the_traffic(stage):
    stage.world.add_version("m2")
    stage.settle()
    nodes = stage.holders()
    stage.core.queue.urgent.clear()
    cache = stage.cache()
    stable = cache.spec.stable.model_copy(update={"model_version": "m2"})
    spec = cache.spec.model_copy(update={"stable": stable})
    stage.world.show(replace(cache, spec=spec))
    stage.settle()
    assert {node_key(NodeName(name)) for name in nodes} <= stage.core.queue.urgent
