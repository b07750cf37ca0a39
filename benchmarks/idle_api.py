"""`idle-api`: what a settled cluster costs the API server.

200 ModelVersions with a ModelCache of 4 copies each on 100 played nodes (real Node, Lease and
CacheNode objects; the agents are stand-ins without bytes). The operator is the real process under
its own service account; its requests are counted by the API server's audit log.
"""

from __future__ import annotations

import asyncio
import collections
import sys
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from figure import Figure, make_figure
from local_system import local_system

from fakes.played_fleet import PlayedFleet
from modelcache_kube import MODEL_CACHES, ConnectConfig, KubeClient, connect
from modelcache_testbed import LocalCluster
from modelcache_testbed.audit import AuditEvent
from modelcache_testbed.bucket import Bucket
from modelcache_testbed.models import build_cache, build_namespace, build_secret, build_version
from modelcache_testbed.seaweed import Seaweed
from modelcache_testbed.system import NAMESPACE, OPERATOR_ACCOUNT, System

NODES, VERSIONS, COPIES = 100, 200, 4
TEAM = "fleet"
WINDOWS, WINDOW_SECONDS = 3, 20.0
# Events are paced, so the last of them follow the last status.
QUIET_SECONDS = 5.0
DEADLINE_SECONDS = 240.0
OPERATOR = f"system:serviceaccount:{NAMESPACE}:{OPERATOR_ACCOUNT}"
WRITES = {"create", "update", "patch", "delete"}
# The aim of the design notes, shown as the ceiling.
AIM_REQUESTS_PER_SECOND = 1.0


def measure() -> Figure:
    """Bring up a fleet, wait until it has settled, count for three windows."""
    with local_system() as (cluster, store, system):
        return asyncio.run(_measure(cluster, store, system))


async def _measure(cluster: LocalCluster, store: Seaweed, system: System) -> Figure:
    names = [f"node-{number:03}" for number in range(NODES)]
    for name in names:
        cluster.add_node(name, wait=False)
    _fill(cluster, store)
    config = ConnectConfig(kubeconfig=cluster.kubeconfig, user_agent="benchmark")
    async with connect(config) as kube, PlayedFleet(kube) as fleet:
        await fleet.add(*names)
        began = cluster.audit.position()
        system.add_operator()
        started = time.monotonic()
        await _converge(kube)
        converged = time.monotonic() - started
        print(f"  converged after {converged:.1f} s", flush=True)
        converging = _by_operator(cluster.audit.events(began))
        trailing = await _until_quiet(cluster)
        rates, writes, reconciles = await _count_windows(cluster, system)
    notes = (
        f"{VERSIONS} ModelVersions x {COPIES} copies on {NODES} played nodes: converged in "
        f"{converged:.1f} s with {len(converging)} requests of the operator "
        f"({len(_writes(converging))} writes), then {trailing} more; idle for "
        f"{WINDOWS * WINDOW_SECONDS:.0f} s: {len(writes)} writes but Leases "
        f"{_tally(writes)}, "
        f"{reconciles:.0f} reconciles"
    )
    samples = {"ours": rates, "aim": [AIM_REQUESTS_PER_SECOND] * len(rates)}
    return make_figure("idle-api", "req/s", samples, ceilings=("aim",), notes=notes)


def _fill(cluster: LocalCluster, store: Seaweed) -> None:
    bucket = Bucket(store, "fleet-models")
    for number in range(VERSIONS):
        bucket.put(f"m{number:03}/config.json", b"{}")
    cluster.apply([build_namespace(TEAM)])
    cluster.apply([build_secret(TEAM, store)])
    cluster.apply(
        [
            document
            for number in range(VERSIONS)
            for document in (
                build_version(
                    TEAM, f"m{number:03}", f"s3://fleet-models/m{number:03}", store.endpoint
                ),
                build_cache(TEAM, f"m{number:03}", f"m{number:03}", copies=COPIES),
            )
        ]
    )


async def _converge(kube: KubeClient) -> None:
    wanted = f"{COPIES}/{COPIES}"
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        found = (await kube.list(MODEL_CACHES, TEAM)).items
        ready = sum(item.get("status", {}).get("copiesSummary") == wanted for item in found)
        if ready == VERSIONS:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{ready} of {VERSIONS} ModelCaches are complete")
        await asyncio.sleep(0.5)


async def _until_quiet(cluster: LocalCluster) -> int:
    """Wait until nothing was written for a while; return how many writes came before that."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    trailing = 0
    while True:
        position = cluster.audit.position()
        await asyncio.sleep(QUIET_SECONDS)
        writes = _writes(_but_renewals(_by_operator(cluster.audit.events(position))))
        if not writes:
            return trailing
        trailing += len(writes)
        if time.monotonic() > deadline:
            raise TimeoutError(f"still writing: {_tally(writes)}")


async def _count_windows(
    cluster: LocalCluster, system: System
) -> tuple[list[float], list[AuditEvent], float]:
    rates: list[float] = []
    writes: list[AuditEvent] = []
    before = _reconciles(system)
    for _ in range(WINDOWS):
        position = cluster.audit.position()
        await asyncio.sleep(WINDOW_SECONDS)
        events = _by_operator(cluster.audit.events(position))
        others = _but_renewals(events)
        rates.append(len(others) / WINDOW_SECONDS)
        writes += _writes(others)
        print(f"  idle: {rates[-1]:.2f} requests/s but renewals of Leases", flush=True)
    return rates, writes, _reconciles(system) - before


def _by_operator(events: Iterable[AuditEvent]) -> list[AuditEvent]:
    return [event for event in events if event.user == OPERATOR and not event.ends_a_watch]


def _but_renewals(events: Iterable[AuditEvent]) -> list[AuditEvent]:
    return [event for event in events if event.resource != "leases" or event.verb == "list"]


def _writes(events: Iterable[AuditEvent]) -> list[AuditEvent]:
    return [event for event in events if event.verb in WRITES]


def _tally(events: Iterable[AuditEvent]) -> dict[str, int]:
    return dict(collections.Counter(f"{event.verb} {event.resource}" for event in events))


def _reconciles(system: System) -> float:
    address = f"http://127.0.0.1:{system.operator_http_port}/metrics"
    with urllib.request.urlopen(address, timeout=5) as response:
        lines = response.read().decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("modelcache_operator_reconcile") and "_total" in line.split(" ")[0]
    )
