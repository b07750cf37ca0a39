"""The same requests through libCacheSim, an implementation that shares nothing with ours."""

from __future__ import annotations

import math

import libcachesim
import pytest

from modelcache_agent.decide.history import LoadCost
from modelcache_agent.decide.policies import find_policy
from modelcache_simulator.contents import make_content
from modelcache_simulator.levels import DISK, STORE
from modelcache_simulator.node import SimulatedNode
from modelcache_simulator.synthetic import Shape, make_requests

MODELS = 40
SHAPE = Shape(models=MODELS, requests=4000, zipf=0.7, diurnal=0.0, shift_seconds=0.0)
# GDSF's cost there is 1, whatever the size.
COSTS = {DISK: LoadCost(0.0, 0.0), STORE: LoadCost(1.0, 0.0)}
EQUAL = {f"m{number:04d}": 10 for number in range(MODELS)}
DIFFERENT = {f"m{number:04d}": 3 + 7 * number % 41 for number in range(MODELS)}


def our_hits(policy, sizes, capacity, requests):
    node = SimulatedNode({DISK: capacity}, find_policy(policy), COSTS, protects_attached=False)
    contents = {model: make_content(model, size) for model, size in sizes.items()}
    hits = []
    for request in requests:
        hits.append(node.attach(contents[request.model], request.at).found == DISK)
        node.release(contents[request.model], request.at)
    return hits


def their_hits(policy, sizes, capacity, requests):
    cache = getattr(libcachesim, policy.upper())(capacity, hashpower=10)
    hits = []
    for number, request in enumerate(requests):
        asked = libcachesim.Request(
            obj_size=sizes[request.model],
            op=libcachesim.ReqOp.OP_GET,
            obj_id=int(request.model[1:]),
            clock_time=number,
        )
        hits.append(cache.get(asked))
    return hits


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["lru", "fifo"])
def test_models_of_one_size_hit_and_miss_alike(policy, seed):
    requests = list(make_requests(SHAPE, seed))
    hits = our_hits(policy, EQUAL, 120, requests)
    assert hits == their_hits(policy, EQUAL, 120, requests)
    assert 0.1 < sum(hits) / len(hits) < 0.9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["lru", "fifo", "gdsf"])
def test_models_of_all_sizes_hit_as_often(policy, seed):
    """Not one by one: ours spares victims that turn out redundant."""
    requests = list(make_requests(SHAPE, seed))
    ours, theirs = (
        sum(play(policy, DIFFERENT, 250, requests)) / len(requests)
        for play in (our_hits, their_hits)
    )
    assert math.isclose(ours, theirs, abs_tol=0.02), (ours, theirs)


@pytest.mark.parametrize("seed", range(3))
def test_lfu_hits_no_less_where_popularity_does_not_change(seed):
    """Theirs forgets how often a model was asked for when it goes, so ours may hit more."""
    requests = list(make_requests(SHAPE, seed))
    ours, theirs = (
        sum(play("lfu", EQUAL, 120, requests)) / len(requests) for play in (our_hits, their_hits)
    )
    assert -0.01 < ours - theirs < 0.15, (ours, theirs)
