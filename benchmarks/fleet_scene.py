"""A fleet of played nodes before one real control plane, and what a figure asks of it.

Real Node, Lease and CacheNode objects; the agents are stand-ins without bytes. The operator is the
real process under its own service account; between it and the API server is a door that counts.
"""

from __future__ import annotations

import asyncio
import collections
import os
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from counting_door import CountingDoor

from fakes.played_fleet import PlayedFleet
from modelcache_kube import CACHE_NODES, MODEL_CACHES, NODES, Change, KubeClient, KubeError
from modelcache_testbed import LocalCluster, nodes
from modelcache_testbed.audit import AuditEvent
from modelcache_testbed.bucket import Bucket
from modelcache_testbed.models import build_cache, build_namespace, build_secret, build_version
from modelcache_testbed.seaweed import Seaweed
from modelcache_testbed.system import NAMESPACE, OPERATOR_ACCOUNT, Program, System

TEAM, BUCKET, POOL = "fleet", "fleet-models", "pool"
# At most 64 models are labelled on a node, so that `copies: All` of 200 takes several pools.
POOLS = 4
OURS = f"/apis/modelcache.io/v1alpha1/namespaces/{TEAM}"
PREFIX = "cache.modelcache.io/"
WRITES = frozenset({"create", "update", "patch", "delete"})
DEADLINE_SECONDS = 900.0
# All phases end within it.
TOKEN_SECONDS = 4 * 3600
OPERATOR = f"system:serviceaccount:{NAMESPACE}:{OPERATOR_ACCOUNT}"

Question = Callable[[], Awaitable[str | None]]
"""None once it holds, else what is missing."""


def pool_of(number: int) -> str:
    """The pool of a node, and of a ModelCache."""
    return f"p{number % POOLS}"


def add_nodes(cluster: LocalCluster, names: Iterable[str]) -> None:
    """Nodes that are Ready and take pods, whatever the node controller is busy with."""

    def add(numbered: tuple[int, str]) -> None:
        number, name = numbered
        node = nodes.build_node(name, labels={POOL: pool_of(number)})
        nodes.create_node(cluster.api, node)
        cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(add, enumerate(names)))


def add_models(cluster: LocalCluster, store: Seaweed, count: int, copies: int) -> None:
    """That many ModelVersions, each with a ModelCache in its pool."""
    bucket = Bucket(store, BUCKET)
    cluster.apply([build_namespace(TEAM)])
    cluster.apply([build_secret(TEAM, store)])

    def add(number: int) -> None:
        name = f"m{number:03}"
        bucket.put(f"{name}/config.json", b"{}")
        version = build_version(TEAM, name, f"s3://{BUCKET}/{name}", store.endpoint)
        placement: dict[str, Any] = {"copies": copies, "nodeSelector": {POOL: pool_of(number)}}
        cluster.api.create(f"{OURS}/modelversions", version)
        cluster.api.create(f"{OURS}/modelcaches", build_cache(TEAM, name, name, **placement))

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(add, range(count)))


@contextmanager
def counting_door(cluster: LocalCluster, folder: Path) -> Iterator[tuple[CountingDoor, Path]]:
    """A door before the API server, and the operator's kubeconfig that leads through it."""
    credentials = cluster.service_account_kubeconfig(
        NAMESPACE, OPERATOR_ACCOUNT, folder, lifetime_seconds=TOKEN_SECONDS
    )
    config = yaml.safe_load(credentials.kubeconfig.read_text())
    address = urlsplit(config["clusters"][0]["cluster"]["server"])
    with CountingDoor((str(address.hostname), int(address.port or 443))) as door:
        config["clusters"][0]["cluster"]["server"] = door.endpoint.replace("http:", "https:")
        own = folder / "counted.kubeconfig"
        own.write_text(yaml.safe_dump(config))
        yield door, own


class LabelWatch:
    """Our labels on nodes as they come and go.

    A flap is one that comes back after it went, or that goes though its agent vouches for it.
    """

    def __init__(
        self, vouched: Callable[[str], frozenset[str]] = lambda _node: frozenset()
    ) -> None:
        self.flapped: list[str] = []
        self._vouched = vouched
        self._here: dict[str, frozenset[str]] = {}
        self._gone: set[tuple[str, str]] = set()

    @property
    def flaps(self) -> int:
        """How many there were."""
        return len(self.flapped)

    async def run(self, kube: KubeClient) -> None:
        """Watch until cancelled."""
        async for event in kube.watch(NODES):
            if event.type in {Change.ADDED, Change.MODIFIED}:
                labels = event.object["metadata"].get("labels") or {}
                self.note(event.object["metadata"]["name"], labels)

    def note(self, node: str, labels: Iterable[str]) -> None:
        """One look at a node."""
        keys = frozenset(key for key in labels if key.startswith(PREFIX))
        before = self._here.get(node, frozenset())
        taken = (before - keys) & self._vouched(node)
        back = {key for key in keys - before if (node, key) in self._gone}
        for what, flapped in (("was taken off", taken), ("came back", back)):
            self.flapped += (f"{key} of {node} {what}" for key in sorted(flapped))
        # One that was taken off is counted once, and not once more when it is put back.
        self._gone |= {(node, key) for key in before - keys - taken}
        self._gone -= {(node, key) for key in keys - before}
        self._here[node] = keys

    def on(self, node: str) -> frozenset[str]:
        """Our labels there now."""
        return self._here.get(node, frozenset())

    def forgive(self, nodes: Iterable[str] | None = None) -> None:
        """What has gone from these nodes, or all, went with reason, and may come back."""
        named = None if nodes is None else frozenset(nodes)
        self._gone = {one for one in self._gone if named is not None and one[0] not in named}


@dataclass(frozen=True)
class Span:
    """What one phase took of the operator."""

    name: str
    seconds: float
    requests: dict[str, int]
    bytes_in: int
    bytes_out: int
    peak_mib: float
    flapped: tuple[str, ...]
    operator_cpu: float
    harness_cpu: float

    def tell(self) -> str:
        """One line."""
        verbs = ", ".join(f"{count} {verb}" for verb, count in sorted(self.requests.items()))
        return (
            f"{self.name}: {self.seconds:.1f} s; {verbs or 'no request'}; "
            f"{self.bytes_in / 2**20:.1f} MiB in, {self.bytes_out / 2**20:.1f} MiB out; "
            f"peak {self.peak_mib:.0f} MiB; {self._tell_flaps()}; CPU: "
            f"operator {self.operator_cpu:.1f} s, stand-ins and door {self.harness_cpu:.1f} s"
        )

    def _tell_flaps(self) -> str:
        first = f", first {self.flapped[0]}" if self.flapped else ""
        return f"{len(self.flapped)} labels flapped{first}"


@dataclass
class Scene:
    """The fleet while it is measured."""

    cluster: LocalCluster
    system: System
    kube: KubeClient
    fleet: PlayedFleet
    door: CountingDoor
    labels: LabelWatch
    watching: asyncio.Task[None]
    spans: list[Span] = field(default_factory=list)

    async def measure(
        self, name: str, act: Callable[[], Awaitable[object]], is_done: Question
    ) -> Span:
        """Do it, wait until it is done, and say what that took of all replicas."""
        position, flaps = self.cluster.audit.position(), self.labels.flaps
        bytes_in, bytes_out = self.door.served, self.door.asked
        cpu, own_cpu = self._cpu(), time.process_time()
        began = time.monotonic()
        await act()
        await self.until(is_done, name)
        seconds = time.monotonic() - began
        events = but_renewals(by_operator(self.cluster.audit.events(position)))
        span = Span(
            name=name,
            seconds=seconds,
            requests=dict(collections.Counter(event.verb for event in events)),
            bytes_in=self.door.served - bytes_in,
            bytes_out=self.door.asked - bytes_out,
            peak_mib=max(map(peak_mib, self.operators()), default=0.0),
            flapped=tuple(self.labels.flapped[flaps:]),
            # A process that began within the phase has taken nothing before.
            operator_cpu=sum(now - cpu.get(pid, 0.0) for pid, now in self._cpu().items()),
            harness_cpu=time.process_time() - own_cpu,
        )
        print(f"  {span.tell()}", flush=True)
        self.spans.append(span)
        # After the clock has stopped: it lists what is largest.
        await self.until(self.are_labelled(), f"{name}: labels")
        return span

    async def until(self, is_done: Question, what: str) -> None:
        """Ask twice a second."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (missing := await _ask(is_done)) is not None:
            self.fleet.assert_alive()
            if self.watching.done():
                raise RuntimeError("labels are not watched any more") from _end_of(self.watching)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: {missing}")
            await asyncio.sleep(0.5)

    def _cpu(self) -> dict[int, float]:
        pids = [one.identity.pid for one in self.operators() if one.identity is not None]
        return {pid: read_cpu_seconds(pid) for pid in pids}

    def operators(self) -> list[Program]:
        """The replicas that live."""
        return [one for one in self.system.operators.values() if one.identity is not None]

    def have_copies(self, count: int, wanted: Callable[[int], int]) -> Question:
        """All ModelCaches have their verified copies; `wanted` by number."""

        async def ask() -> str | None:
            found = (await self.kube.list(MODEL_CACHES, TEAM)).items
            short = [
                item["metadata"]["name"]
                for item in found
                if item.get("status", {}).get("copiesSummary")
                != "{0}/{0}".format(wanted(int(item["metadata"]["name"][1:])))
            ]
            if len(found) == count and not short:
                return None
            return f"{len(short)} of {len(found)} ModelCaches are not complete, first {short[:3]}"

        return ask

    def have_been_looked_at(self) -> Question:
        """The operator has decided on the spec of every ModelCache as it is now."""

        async def ask() -> str | None:
            found = (await self.kube.list(MODEL_CACHES, TEAM)).items
            old = [
                item["metadata"]["name"]
                for item in found
                if item.get("status", {}).get("observedGeneration")
                != item["metadata"]["generation"]
            ]
            return f"{len(old)} ModelCaches are not looked at, first {old[:3]}" if old else None

        return ask

    def are_labelled(self) -> Question:
        """Nodes whose agents live carry a label for each verified copy, and no other."""

        async def ask() -> str | None:
            labels = {
                item["metadata"]["name"]: own_labels(item)
                for item in (await self.kube.list(NODES)).items
            }
            wrong = [
                item["metadata"]["name"]
                for item in (await self.kube.list(CACHE_NODES)).items
                if self._is_living(item["metadata"]["name"])
                and labels.get(item["metadata"]["name"]) != verified_labels(item)
            ]
            return f"labels of {len(wrong)} nodes are wrong, first {wrong[:3]}" if wrong else None

        return ask

    def _is_living(self, name: str) -> bool:
        node = self.fleet.nodes.get(name)
        return node is not None and node.is_alive

    async def patch_all(self, count: int, spec: dict[str, Any]) -> None:
        """What a user does to all ModelCaches."""
        slots = asyncio.Semaphore(16)

        async def patch(number: int) -> None:
            async with slots:
                await self.kube.merge_patch(
                    MODEL_CACHES, f"m{number:03}", {"spec": spec}, namespace=TEAM
                )

        await asyncio.gather(*map(patch, range(count)))


def vouched_by(fleet: PlayedFleet, name: str) -> frozenset[str]:
    """Labels of what a living agent holds; none of a silent one."""
    node = fleet.nodes.get(name)
    return node.vouched if node is not None and node.is_alive else frozenset()


def own_labels(node: dict[str, Any]) -> frozenset[str]:
    """Our labels on a Node."""
    labels = node["metadata"].get("labels") or {}
    return frozenset(key for key in labels if key.startswith(PREFIX))


def verified_labels(cache_node: dict[str, Any]) -> frozenset[str]:
    """The labels of those entries of a CacheNode that its agent reports as verified."""
    entries = cache_node.get("status", {}).get("entries", ())
    verified = {entry["uid"] for entry in entries if entry["state"] == "Cached"}
    return frozenset(
        entry["labelKey"]
        for entry in cache_node["spec"].get("entries", ())
        if entry["uid"] in verified and entry.get("labelKey")
    )


def fetch_metrics(port: int) -> dict[str, float]:
    """Series of the operator by name and labels; none while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
    except OSError:
        return {}
    rows = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def _end_of(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


async def _ask(question: Question) -> str | None:
    """An API server that has just begun may not answer yet."""
    try:
        return await question()
    except KubeError as error:
        return str(error)


def by_operator(events: Iterable[AuditEvent]) -> list[AuditEvent]:
    """Requests of all replicas, each watch once."""
    return [event for event in events if event.user == OPERATOR and not event.ends_a_watch]


def but_renewals(events: Iterable[AuditEvent]) -> list[AuditEvent]:
    """Without the leader's renewals of its own Lease."""
    return [event for event in events if event.resource != "leases" or event.verb == "list"]


def peak_mib(program: Program) -> float:
    """The most memory that the process has had resident."""
    return read_status(program, "VmHWM")


def read_status(program: Program, row: str) -> float:
    """A row of the process' status in MiB; 0 if it has ended."""
    identity = program.identity
    if identity is None:
        return 0.0
    try:
        lines = Path(f"/proc/{identity.pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{row}:")), 0.0)


def read_cpu_seconds(pid: int) -> float:
    """What a process has taken of the cores, user and system; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def count_descriptors(program: Program) -> int:
    """Open descriptors of the process; 0 if it has ended."""
    identity = program.identity
    try:
        return len(list(Path(f"/proc/{identity.pid}/fd").iterdir())) if identity else 0
    except FileNotFoundError:
        return 0
