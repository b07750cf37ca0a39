"""Puts one agent together, runs it until it is told to stop, and drains it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Final

from modelcache_agent.actor import Actor
from modelcache_agent.adapters.http_grants import HttpGrants
from modelcache_agent.adapters.kube_cluster import KubeCluster
from modelcache_agent.adapters.operator_http import OperatorHttp
from modelcache_agent.adapters.prometheus import PrometheusMetrics
from modelcache_agent.adapters.status_http import serve_status
from modelcache_agent.adapters.system_clock import SystemClock
from modelcache_agent.background import BackgroundTasks
from modelcache_agent.config import EMULATED, Config
from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.decide.measures import LoadSource
from modelcache_agent.decide.watermarks import NO_WATERMARKS, Watermarks
from modelcache_agent.errands import Errands
from modelcache_agent.fetch import FetchConfig, FetchEngine, SourceGate
from modelcache_agent.fetch.clock import SystemClock as FetchClock
from modelcache_agent.gpu_keeper import GpuKeeper
from modelcache_agent.heartbeat import Heartbeat
from modelcache_agent.host_keeper import HostKeeper
from modelcache_agent.identity import NodeIdentity
from modelcache_agent.inputs.log import InputLog
from modelcache_agent.inputs.records import Header
from modelcache_agent.loop import AgentLoop, LoopSettings
from modelcache_agent.memory import Memory
from modelcache_agent.peers.assembly import Peers
from modelcache_agent.peers.waiting import GrantQueue
from modelcache_agent.ports.cluster import Cluster
from modelcache_agent.scrubbing import Pacer, Scrubber
from modelcache_agent.slots import SlotKeeper
from modelcache_agent.socket.server import VolumeSockets
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.gpu.opening import find_device
from modelcache_agent.tiers.gpu.pod_resources import KUBELET_SOCKET, PodResources
from modelcache_agent.tiers.gpu.tier import GpuTier
from modelcache_agent.tiers.host.signs import read_signs
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_agent.transfers import Transfers
from modelcache_agent.volume.companions import Companions
from modelcache_agent.volume.keeper import VolumeKeeper
from modelcache_agent.volume.notice import noticing
from modelcache_agent.wakeup import Wakeup
from modelcache_api.manifest import ContentDigest
from modelcache_api.names import Tier, VolumeState
from modelcache_api.volume_progress import VolumeProgress
from modelcache_kube import ConnectConfig, KubeClient, connect

_log = logging.getLogger(__name__)
# The Lease is renewed at most this long after the last completed turn. Longer than any request's
# deadline; shorter than the operator's patience.
_SILENT_SECONDS: Final = 240.0
# The kubelet kills after 30 s; we promise to be gone within ten.
_DRAIN_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What start-up has found out."""

    config: Config
    identity: NodeIdentity
    store: DiskStore
    capacity_bytes: int
    watermarks: Watermarks = NO_WATERMARKS


async def run_agent(around: Surroundings, stop: asyncio.Event) -> bool:
    """Run until `stop` is set; False if a part of the agent ended by itself, which is a bug."""
    requests: Counter[tuple[str, ...]] = Counter()

    def count(verb: str, resource: str, code: int) -> None:
        requests[verb, resource, str(code)] += 1

    async with (
        connect(_connection(around.config), on_request=count) as kube,
        running(around, _make_cluster(around, kube), requests) as parts,
    ):
        stopping = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait({stopping, *parts}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        _log.info("stopping" if stop.is_set() else "a part of the agent ended by itself")
    return stop.is_set()


def find_version() -> str:
    """The installed version."""
    try:
        return version("modelcache")
    except PackageNotFoundError:
        return "unknown"


@asynccontextmanager
async def running(
    around: Surroundings,
    cluster: Cluster,
    api_requests: Mapping[tuple[str, ...], int] = MappingProxyType({}),
) -> AsyncIterator[tuple[asyncio.Task[None], ...]]:
    """The parts that must never end. On leaving, transfers stop and can be resumed later.

    `api_requests` are told as a metric: requests to the API server by verb, resource and code.
    """
    async with AsyncExitStack() as stack:
        parts = await _assemble(around, cluster, stack, api_requests)
        status = serve_status(
            around.config.metrics_port,
            render_metrics=parts.metrics.render,
            is_alive=parts.is_alive,
            is_ready=lambda: parts.loop.last_turn_at is not None,
            render_decisions=lambda: around.store.decisions.look().model_dump_json(by_alias=True),
        )
        await stack.enter_async_context(status)
        tasks = parts.tasks
        yield (
            tasks.start("loop", parts.loop.run()),
            tasks.start("watch", parts.loop.watch()),
            tasks.start("heartbeat", parts.make_heartbeat(around.config).run()),
        )


@dataclass(frozen=True, slots=True)
class _Parts:
    """What was put together, as far as somebody still needs it."""

    loop: AgentLoop
    tasks: BackgroundTasks
    metrics: PrometheusMetrics
    cluster: Cluster
    memory: Memory
    wakeup: Wakeup
    clock: SystemClock

    def is_alive(self) -> bool:
        """False once no turn of the loop was completed for too long."""
        return self.clock.monotonic() - self.loop.alive_at < _SILENT_SECONDS

    def make_heartbeat(self, config: Config) -> Heartbeat:
        """The keeper of the Lease."""
        return Heartbeat(
            cluster=self.cluster,
            memory=self.memory,
            wakeup=self.wakeup,
            clock=self.clock,
            metrics=self.metrics,
            is_alive=self.is_alive,
            lease_seconds=config.lease_interval,
            relabel_seconds=config.relabel_interval,
        )


async def _assemble(
    around: Surroundings,
    cluster: Cluster,
    stack: AsyncExitStack,
    api_requests: Mapping[tuple[str, ...], int],
) -> _Parts:
    """All parts; what the stack holds is closed in the reverse order."""
    clock, wakeup, memory = SystemClock(), Wakeup(), Memory()
    thread, tasks = StoreThread(), BackgroundTasks()
    stack.push_async_callback(thread.close, _DRAIN_SECONDS)
    http = _connect_operator(around.config, stack)
    peers = Peers(around.config, clock, _waker(wakeup)) if around.config.peers else None
    book = None if peers is None else peers.book
    grants = HttpGrants(http, book, clock.monotonic)
    fetch_clock = FetchClock()
    gate = SourceGate(fetch_clock, clock.monotonic)
    engine = await stack.enter_async_context(
        FetchEngine(grants, _fetch_config(around.config), fetch_clock, routes=book, gate=gate)
    )
    sockets = VolumeSockets(
        around.store.layout.pods,
        thread,
        tasks,
        clock,
        _note_demand(around.store, thread, wakeup),
        wakeup.set,
    )
    metrics = PrometheusMetrics(
        engine.counters,
        engine.keep_egress,
        (lambda: peers.book.answers) if peers is not None else dict,
        peers.sent.total if peers is not None else int,
        lambda: sockets.counters,
        (lambda: peers.credentials.expires_at) if peers is not None else lambda: None,
        lambda: api_requests,
    )
    most = around.config.max_models
    queue = GrantQueue(grants, book, clock, lambda: memory.count_fetching() < most)
    slots = SlotKeeper(grants, gate, clock)
    host = _make_host(around, memory, thread, tasks, wakeup, clock, metrics)
    if host is not None:
        stack.push_async_callback(host.close)
        await host.open()
    gpu = _make_gpu(around, memory, thread, tasks, wakeup, clock, metrics)
    if gpu is not None:
        stack.push_async_callback(gpu.close)
        sockets.hand_over = gpu.hand_over
    errands = Errands(
        memory=memory,
        transfers=Transfers(
            grants,
            engine,
            around.store,
            thread,
            queue,
            slots,
            host.note_written if host is not None else lambda _blobs: None,
            _note_loaded(metrics, memory, clock),
        ),
        scrubber=Scrubber(
            around.store, thread, Pacer(around.config.scrub_bandwidth), metrics, wakeup.set
        ),
        tasks=tasks,
        wakeup=wakeup,
        clock=clock,
        metrics=metrics,
    )
    stack.callback(sockets.close)
    stack.push_async_callback(tasks.close, _DRAIN_SECONDS)
    stack.push_async_callback(errands.stop)
    if peers is not None:
        await peers.start(stack, tasks, http, around.store, engine)
    actor = Actor(
        memory=memory,
        store=around.store,
        thread=thread,
        cluster=cluster,
        errands=errands,
        host=host,
        gpu=gpu,
        wakeup=wakeup,
        clock=clock,
        metrics=metrics,
    )
    loop = AgentLoop(
        _loop_settings(around),
        memory=memory,
        store=around.store,
        thread=thread,
        cluster=cluster,
        actor=actor,
        wakeup=wakeup,
        clock=clock,
        metrics=metrics,
        volumes=VolumeKeeper(
            around.store,
            Companions(around.store, around.config.drain_deadline, clock.monotonic),
        ),
        host=host,
        gpu=gpu,
        find_peer=lambda: None if peers is None else peers.status,
        sockets=sockets,
        inputs=_make_input_log(around),
    )
    stack.enter_context(noticing(around.store.layout.pods, wakeup.set))
    return _Parts(loop, tasks, metrics, cluster, memory, wakeup, clock)


def _make_host(
    around: Surroundings,
    memory: Memory,
    thread: StoreThread,
    tasks: BackgroundTasks,
    wakeup: Wakeup,
    clock: SystemClock,
    metrics: PrometheusMetrics,
) -> HostKeeper | None:
    """None where the tier is off."""
    capacity = around.config.host_capacity
    if capacity == 0:
        return None
    return HostKeeper(
        capacity,
        around.store,
        thread,
        memory,
        tasks,
        wakeup,
        clock,
        metrics,
        read_signs=read_signs,
    )


def _make_gpu(
    around: Surroundings,
    memory: Memory,
    thread: StoreThread,
    tasks: BackgroundTasks,
    wakeup: Wakeup,
    clock: SystemClock,
    metrics: PrometheusMetrics,
) -> GpuKeeper | None:
    """None where the tier is off."""
    config = around.config
    if config.gpu_capacity == 0:
        return None
    is_emulated = config.gpu_device == EMULATED
    kubelet = config.pod_resources or (None if is_emulated else KUBELET_SOCKET)
    _log.warning("the GPU tier is on; it is experimental: device=%s", config.gpu_device)
    return GpuKeeper(
        GpuTier(
            find_device(config.gpu_capacity, is_emulated=is_emulated), config.gpu_capacity, clock
        ),
        around.store,
        thread,
        memory,
        tasks,
        wakeup,
        clock,
        metrics,
        kubelet=None if kubelet is None else PodResources(kubelet),
    )


def _connection(config: Config) -> ConnectConfig:
    return ConnectConfig(config.kubeconfig, user_agent=f"modelcache-agent/{find_version()}")


def _waker(wakeup: Wakeup) -> Callable[[], None]:
    """Wakes the loop from any thread."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(wakeup.set)

    return wake


def _note_demand(
    store: DiskStore, thread: StoreThread, wakeup: Wakeup
) -> Callable[[VolumeProgress], Awaitable[None]]:
    """A process wants its model now: it was used, or the loop looks at once what is missing."""

    async def note(progress: VolumeProgress) -> None:
        if progress.state is VolumeState.READY:
            await thread.call(store.note_use, ContentDigest(progress.content_digest))
        else:
            wakeup.set()

    return note


def _note_loaded(
    metrics: PrometheusMetrics, memory: Memory, clock: SystemClock
) -> Callable[[ContentDigest, LoadSource, float], None]:
    """Counts what came to the disk, and remembers since when it waits for its label."""

    def note(digest: ContentDigest, source: LoadSource, seconds: float) -> None:
        metrics.count_load(Tier.DISK, source, seconds)
        memory.note_published(digest, clock.monotonic())

    return note


def _connect_operator(config: Config, stack: AsyncExitStack) -> OperatorHttp:
    http = OperatorHttp(
        config.operator_url, ca_file=config.operator_ca_file, token_file=config.grant_token_file
    )
    stack.push_async_callback(http.close)
    return http


def _fetch_config(config: Config) -> FetchConfig:
    cap = config.max_bandwidth
    return FetchConfig(
        streams=config.streams,
        max_jobs=config.max_models,
        bandwidth=None if cap is None else Bandwidth(cap),
    )


def _make_cluster(around: Surroundings, kube: KubeClient) -> KubeCluster:
    return KubeCluster(
        kube,
        node_name=around.identity.name,
        node_uid=around.identity.uid,
        namespace=around.config.namespace,
        lease_seconds=around.config.lease_interval,
    )


def _make_input_log(around: Surroundings) -> InputLog | None:
    """The log of what decisions are made of, if it is wanted; the history is heard by it, too."""
    store, most_bytes = around.store, around.config.input_log
    if most_bytes is None:
        return None

    def size_of(digest: str) -> int | None:
        stored = store.catalog.get(ContentDigest(digest))
        return None if stored is None else stored.held.size_bytes

    header = Header(around.config.disk_policy.name, find_version())
    log = InputLog(store.layout.inputs, most_bytes, header, clock=store.now, size_of=size_of)
    store.history.listener = log
    return log


def _loop_settings(around: Surroundings) -> LoopSettings:
    return LoopSettings(
        node_uid=around.identity.uid,
        capacity_bytes=around.capacity_bytes,
        max_models=around.config.max_models,
        policy=around.config.disk_policy,
        scrub_interval=around.config.scrub_interval,
        watermarks=around.watermarks,
        min_residency=around.config.min_residency,
        agent_version=find_version(),
    )
