"""Heartbeats and leader election against a real API server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager

import pytest

from modelcache_kube import (
    LEASES,
    NODES,
    Change,
    ConnectConfig,
    ElectionTimes,
    LeaderElector,
    LeaseHeartbeat,
    connect,
)

pytestmark = pytest.mark.cluster
TIMES = ElectionTimes(lease_duration=2.0, renew_deadline=1.0, retry=0.1)
PATIENCE = 15.0


class Candidate:
    """A process that leads for as long as it may."""

    def __init__(self, kube, room, name, identity, times=TIMES):
        self.elector = LeaderElector(kube, room, name, identity, times=times)
        self.leading = asyncio.Event()
        self.stopped = asyncio.Event()

    async def work(self):
        self.leading.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


@asynccontextmanager
async def running(candidate):
    task = asyncio.create_task(candidate.elector.run(candidate.work))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def soon(awaitable):
    async with asyncio.timeout(PATIENCE):
        return await awaitable


async def test_one_leads_and_the_other_takes_over_at_once_after_a_release(kube, room, name):
    patient = ElectionTimes(lease_duration=60.0, renew_deadline=40.0, retry=0.1)
    first, second = (Candidate(kube, room, name, i, patient) for i in ("first", "second"))
    async with running(first):
        await soon(first.leading.wait())
        async with running(second):
            await asyncio.sleep(0.5)
            assert first.elector.is_leader()
            assert not second.leading.is_set()
            lease = await kube.get(LEASES, name, room)
            assert lease["spec"]["holderIdentity"] == "first"
    async with running(second):
        await soon(second.leading.wait())
        assert first.stopped.is_set()
        assert not first.elector.is_leader()
        lease = await kube.get(LEASES, name, room)
        assert lease["spec"]["leaseTransitions"] == 1
    lease = await kube.get(LEASES, name, room)
    assert "holderIdentity" not in lease["spec"]


@pytest.mark.parametrize("outage", ["freeze", "refuse"])
async def test_leader_without_api_server_stops_before_the_next_one_begins(
    kube, room, name, relayed, outage
):
    relay, kubeconfig = relayed
    async with connect(ConnectConfig(kubeconfig=kubeconfig)) as far:
        first = Candidate(far, room, name, "first")
        second = Candidate(kube, room, name, "second")
        async with running(first) as term:
            await soon(first.leading.wait())
            async with running(second):
                getattr(relay, outage)()
                await soon(first.stopped.wait())
                assert not first.elector.is_leader()
                assert not second.leading.is_set()
                await soon(second.leading.wait())
                relay.thaw()
                relay.refuse(refusing=False)
                await soon(term)
                assert second.elector.is_leader()


async def test_work_that_ends_ends_the_term_and_releases(kube, room, name):
    elector = LeaderElector(kube, room, name, "one", times=TIMES)
    seen = []

    async def work():
        seen.append(elector.is_leader())

    await soon(elector.run(work))
    assert seen == [True]
    assert not elector.is_leader()
    assert "holderIdentity" not in (await kube.get(LEASES, name, room))["spec"]


async def test_work_that_fails_is_told_after_the_release(kube, room, name):
    elector = LeaderElector(kube, room, name, "one", times=TIMES)

    async def work():
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await soon(elector.run(work))
    assert "holderIdentity" not in (await kube.get(LEASES, name, room))["spec"]


async def test_lease_taken_by_hand_ends_the_term(kube, room, name):
    candidate = Candidate(kube, room, name, "one")
    async with running(candidate) as term:
        await soon(candidate.leading.wait())
        spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 60}
        await kube.merge_patch(LEASES, name, {"spec": spec}, namespace=room)
        await soon(candidate.stopped.wait())
        await soon(term)
        assert not candidate.elector.is_leader()
        lease = await kube.get(LEASES, name, room)
        assert lease["spec"]["holderIdentity"] == "somebody"


async def test_heartbeat_creates_renews_and_goes_with_its_node(cluster, kube, room, name):
    cluster.add_node(name, wait=False)
    node = await kube.get(NODES, name)
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    heartbeat = LeaseHeartbeat(
        kube, room, name, name, 180, "modelcache-agent", {"modelcache.io/agent": "true"}, owner
    )
    await heartbeat.renew()
    first = await kube.get(LEASES, name, room)
    await heartbeat.renew()
    second = await kube.get(LEASES, name, room)
    assert first["spec"]["renewTime"] < second["spec"]["renewTime"]
    assert second["spec"]["holderIdentity"] == name
    assert second["metadata"]["labels"] == {"modelcache.io/agent": "true"}
    leases = kube.watch(LEASES, room, field_selector=f"metadata.name={name}")
    # The garbage collector pauses while definitions come and go, as in tests before this one.
    async with asyncio.timeout(120), aclosing(leases):
        async for change, _ in leases:
            if change is Change.SYNCED:  # before, nobody would tell that the Lease is gone
                cluster.remove_node(name)
            if change is Change.DELETED:
                return
