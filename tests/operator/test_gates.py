"""Pods that rather wait for their model: gated by the policy, let through by the operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.tenant import GATE, REQUIRED, Tenant
from modelcache_testbed.system import System

pytestmark = pytest.mark.cluster

GATE_SECONDS = 5
WISH = {"modelcache.io/placement": "required"}
GATED = {"schedulingGates": [{"name": GATE}]}


@pytest.fixture(scope="module")
def system(cluster, seaweed, tmp_path_factory) -> Iterator[System]:
    """An operator that lets pods through after five seconds; the policies come with it."""
    system = System(cluster, tmp_path_factory.mktemp("gates"))
    system.install()
    system.add_operator(
        extra=(
            "--lease-list-interval=1s",
            "--agent-lost-after=12s",
            f"--gate-timeout={GATE_SECONDS}s",
        )
    )
    try:
        yield system
    finally:
        system.remove()


@pytest.fixture
def tenant(stage) -> Tenant:
    return Tenant(stage)


async def place(stage, copies: int = 1, **placement) -> set[str]:
    """A ModelCache whose copies are verified and labelled; their nodes."""
    await stage.apply_version()
    await stage.apply_cache(copies=copies, **placement)
    await stage.until_cached(copies=f"{copies}/{copies}")
    holders = await stage.holders()
    await stage.until(stage.labels, lambda found: set(found) == holders)
    return holders


async def placed(stage) -> int:
    return (await stage.cache()).get("status", {}).get("copies", {}).get("placed", 0)


async def test_C30_a_required_pod_goes_to_the_node_that_holds_its_model(stage, tenant):
    (warm,) = await place(stage)
    await tenant.run_pod("strict", labels=WISH)
    await stage.until(lambda: tenant.node_of("strict"), warm)
    (term,) = await tenant.required_terms_of("strict")
    key = (await stage.version())["status"]["nodeLabelKey"]
    assert term == {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    await stage.until(
        lambda: tenant.events_of("strict"),
        lambda found: any(reason == "Cached" for reason, _ in found),
    )


async def test_C30_it_waits_while_its_model_is_fetched_and_says_so(stage, tenant):
    for name in stage.nodes:
        stage.fleet.change(name, default_verdict=("Downloading", "Downloading", ""))
    await stage.apply_version()
    await stage.apply_cache(copies=1)
    await stage.until(stage.holders, lambda found: len(found) == 1)
    (fetching,) = await stage.holders()
    await stage.until(lambda: placed(stage), 1)
    await tenant.run_pod("strict", labels=WISH)
    assert await tenant.gates_of("strict") == [GATE]
    await stage.until(
        lambda: tenant.events_of("strict"),
        lambda found: any("0/1 copies, 0% of the bytes" in note for _, note in found),
    )
    assert await tenant.node_of("strict") is None
    for name in stage.nodes:
        stage.fleet.change(name, default_verdict=("Cached", "Cached", ""))
    await stage.until(lambda: tenant.node_of("strict"), fetching)


async def test_C30_after_the_time_out_it_goes_anywhere_and_is_brought_its_model(stage, tenant):
    for name in stage.nodes:
        stage.fleet.change(name, default_verdict=("Downloading", "Downloading", ""))
    await stage.apply_version()
    await stage.apply_cache(copies=1)
    await stage.until(lambda: placed(stage), 1)
    await tenant.run_pod("patient", labels=WISH)
    assert await tenant.gates_of("patient") == [GATE]
    await stage.until(lambda: tenant.node_of("patient"), lambda found: found is not None)
    assert await tenant.required_terms_of("patient") == []
    await stage.until(
        lambda: tenant.events_of("patient"),
        lambda found: any("no node held c1 within" in note for _, note in found),
    )


async def test_C30_required_never_deadlocks_an_empty_cluster(stage, tenant):
    # No ModelCache, no version, no node that could hold it: gates by hand, and by the policy.
    await tenant.run_pod("without", labels=WISH, **GATED)
    await stage.until(lambda: tenant.node_of("without"), lambda found: found is not None)
    await tenant.delete_pod("without")
    await stage.apply_version()
    await stage.apply_cache(copies=1, nodeSelector={"there-is": "no-such-node"})
    await stage.until(stage.ready, ("False", "NoEligibleNode"))
    await tenant.run_pod("by-hand", labels=WISH, **GATED)
    await stage.until(lambda: tenant.node_of("by-hand"), lambda found: found is not None)
    assert await tenant.required_terms_of("by-hand") == []
    # Whatever node it came to, the model follows, and the next pod follows the model.
    node = await tenant.node_of("by-hand")
    await stage.until(lambda: tenant.origins_on(node), ["Demand"])
    await stage.until(stage.labels, lambda found: set(found) == {node})
    await tenant.run_pod("cold", labels=WISH)
    assert await tenant.gates_of("cold") == []
    await stage.until(lambda: tenant.node_of("cold"), node)


async def test_C31_the_requirement_is_joined_with_every_term_of_the_user(stage, tenant):
    (warm,) = await place(stage)
    terms = [
        {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [warm]}
            ]
        },
        {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["none"]}]},
    ]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    await tenant.run_pod("joined", labels=WISH, affinity=affinity)
    await stage.until(lambda: tenant.node_of("joined"), warm)
    key = (await stage.version())["status"]["nodeLabelKey"]
    ours = {"key": key, "operator": "Exists"}
    assert await tenant.required_terms_of("joined") == [
        {"matchExpressions": [*term["matchExpressions"], ours]} for term in terms
    ]


async def test_C31_a_holder_in_another_pool_is_none_the_pod_lands_in_its_own(stage, tenant):
    (warm,) = await place(stage)
    cold = next(name for name in stage.nodes if name != warm)
    await tenant.run_pod("elsewhere", on=cold, labels=WISH)
    await stage.until(lambda: tenant.node_of("elsewhere"), cold)
    assert await tenant.required_terms_of("elsewhere") == []
    await stage.until(lambda: tenant.origins_on(cold), ["Demand"])


async def test_a_cordoned_holder_does_not_hold_the_pod_up(stage, tenant):
    (warm,) = await place(stage)
    await tenant.patch_node(warm, {"unschedulable": True})
    await stage.until(
        lambda: tenant.taints_of(warm), lambda found: "node.kubernetes.io/unschedulable" in found
    )
    await tenant.run_pod("strict", labels=WISH)
    await stage.until(
        lambda: tenant.node_of("strict"), lambda found: found is not None and found != warm
    )


async def test_other_gates_stay(stage, tenant):
    await place(stage)
    await tenant.run_pod("twice", labels=WISH, schedulingGates=[{"name": "a.example/other"}])
    await stage.until(lambda: tenant.gates_of("twice"), ["a.example/other"])
    assert len(await tenant.required_terms_of("twice")) == 1


async def test_a_pod_without_the_wish_is_never_gated(stage, tenant):
    (warm,) = await place(stage)
    await tenant.run_pod("soft")
    assert await tenant.gates_of("soft") == []
    await stage.until(lambda: tenant.node_of("soft"), warm)
    assert await tenant.required_terms_of("soft") == []
