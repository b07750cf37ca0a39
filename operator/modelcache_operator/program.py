"""Wires the operator together, and keeps it running."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version as installed_version
from typing import Final, TypeVar

from kubernetes.aio.config import ConfigException

from modelcache_api import names
from modelcache_kube import ConnectConfig, KubeClient, KubeError, LeaderElector, connect
from modelcache_operator.adapters.agent_leases import AgentLeaseLister
from modelcache_operator.adapters.authority_store import KubeAuthorityStore
from modelcache_operator.adapters.callers import KubeCallers
from modelcache_operator.adapters.clock import SystemClock
from modelcache_operator.adapters.cluster import KubeWriter
from modelcache_operator.adapters.events import KubeEvents
from modelcache_operator.adapters.http_endpoints import HttpEndpoints
from modelcache_operator.adapters.keyed_data import KubeKeyedData
from modelcache_operator.adapters.login import read_login
from modelcache_operator.adapters.manifest_store import ConfigMapManifests
from modelcache_operator.adapters.metrics import OperatorMetrics
from modelcache_operator.adapters.parsing import ObservedKind
from modelcache_operator.adapters.pod_watch import watch_pods
from modelcache_operator.adapters.prometheus import PrometheusServer
from modelcache_operator.adapters.relist import Relister
from modelcache_operator.adapters.request_tap import RequestTap
from modelcache_operator.adapters.routes import KubeRoutes, watch_routes
from modelcache_operator.adapters.token_bucket import TokenBucket
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.adapters.watch_health import WatchHealth
from modelcache_operator.config import OperatorConfig
from modelcache_operator.core import CoreParts, CoreTimes, make_core
from modelcache_operator.decide.grant_access import AgentAccount
from modelcache_operator.decide.liveness import LivenessLimits
from modelcache_operator.decide.world import AgentLeaseView, ObjectKey, Uid
from modelcache_operator.grant_authentication import Authenticator
from modelcache_operator.grants import GrantService
from modelcache_operator.grants_server import GrantsServer
from modelcache_operator.health import make_health
from modelcache_operator.keys import Key, KeyKind, version_key
from modelcache_operator.kopf_app import KopfInformer
from modelcache_operator.leading import Term
from modelcache_operator.peer_credentials import PeerCredentials
from modelcache_operator.peering import Peering, PeeringSettings
from modelcache_operator.placement_tally import PlacementTally
from modelcache_operator.pod_authentication import PodAuthenticator
from modelcache_operator.pod_door import PodDoor
from modelcache_operator.policy_files import PolicyFiles
from modelcache_operator.ports.authority import AuthorityDamagedError
from modelcache_operator.ports.manifests import Manifests
from modelcache_operator.ports.sources import Sources
from modelcache_operator.serving_certificate import RotationPlan, ServingCertificate
from modelcache_operator.slots import Slots
from modelcache_operator.sources.by_scheme import make_sources
from modelcache_operator.workqueue import WorkQueue

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_RETRY_SECONDS: Final = 5.0
_NOT_CONTACTED: Final = "the cluster has not been listed yet"


class StartupError(Exception):
    """The operator cannot even begin; the message names the cause and the cure."""


async def run_operator(config: OperatorConfig) -> None:
    """Run until cancelled.

    Raises:
        StartupError: the configuration cannot be used.
    """
    try:
        files = PolicyFiles.read(config.source_policy, config.limits, config.default_quota)
    except ValueError as error:
        raise StartupError(str(error)) from error
    tap = RequestTap()
    async with _connect(config, tap) as kube:
        await _Program(config, kube, tap, files).run()


@asynccontextmanager
async def _connect(config: OperatorConfig, tap: RequestTap) -> AsyncIterator[KubeClient]:
    agent = f"{names.MANAGER_OPERATOR}/{installed_version('modelcache')}"
    wanted = ConnectConfig(kubeconfig=config.kubeconfig, user_agent=agent)
    try:
        async with connect(wanted, on_request=tap) as kube:
            yield kube
    except ConfigException as error:
        raise StartupError(f"--kubeconfig: no usable credentials: {error}") from error


class _Program:
    """The parts, made once and in order; `run` starts them."""

    def __init__(
        self, config: OperatorConfig, kube: KubeClient, tap: RequestTap, files: PolicyFiles
    ) -> None:
        self._config = config
        self._kube = kube
        self._clock = clock = SystemClock()
        self._cache = cache = WatchCache()
        self._elector = LeaderElector(
            kube, config.namespace, names.LEADER_LEASE, config.identity, on_error=_log_election
        )
        self._slots = Slots(
            cache, files.limits.current, is_leader=self._is_leader, clock=self._clock.monotonic
        )
        self._metrics = OperatorMetrics(cache, self._is_leader, self._slots.list_use)
        cache.subscribe(PlacementTally(cache, self._metrics.placed).note)
        self._watches = WatchHealth(clock.monotonic, [kind.value for kind in ObservedKind])
        self._informer = KopfInformer(
            partial(read_login, config.kubeconfig),
            cache,
            self._watches,
            on_relist=self._relist_soon,
            on_event=self._metrics.watch_event,
        )
        self._relister = Relister(kube, cache, on_resources_back=self._informer.restart)
        self._health = make_health(
            config, clock.monotonic, self._watches, self._informer, self._relister
        )
        tap.listeners += [self._metrics.request, self._health.note_request]
        self._sources = make_sources(
            KubeKeyedData(kube), files.allow_list.current, hub_endpoint=config.hub_endpoint
        )
        self._manifests = ConfigMapManifests(kube, config.namespace)
        # A node's entries are written when those who place on it have had their turn.
        self._queue = self._make_queue("objects", lambda key: key.kind is KeyKind.NODE)
        self._default_quota = files.default_quota
        self._term = self._make_term(self._sources, self._manifests)
        self._is_serving_grants = False

    async def run(self) -> None:
        """Start everything; end everything when cancelled."""
        http = HttpEndpoints(
            health=self._health.complain,
            readiness=self._complain_of_readiness,
            metrics=self._metrics.render,
        )
        port = await _listen(http.start(self._config.http_port), "--http-port")
        _log.info("health and metrics on port %d, identity %s", port, self._config.identity)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._serve_grants(), name="grants")
                await self._relister.list_all()
                _log.info("the cluster is listed; watching")
                self._watches.begin()
                self._informer.start()
                group.create_task(self._relister.run(), name="relist")
                pods = watch_pods(self._kube, self._cache, self._watches)
                group.create_task(pods, name="pods")
                if self._config.http_routes:
                    routes = watch_routes(
                        self._kube, on_change=self._on_route, on_any=self._on_any_route
                    )
                    group.create_task(routes, name="routes")
                group.create_task(self._lead(), name="leadership")
        except* StartupError as failures:
            raise StartupError(str(failures.exceptions[0])) from failures
        finally:
            await self._informer.stop()
            await self._sources.close()
            await http.stop()

    def _is_leader(self) -> bool:
        return not self._config.leader_elect or self._elector.is_leader()

    async def _lead(self) -> None:
        """One term after another. A term that fails is a bug, and the next one a new chance."""
        while True:
            try:
                if self._config.leader_elect:
                    await self._elector.run(self._run_term)
                else:
                    await self._run_term()
            except Exception:  # noqa: BLE001 - grants are served meanwhile
                _log.exception("a term of leadership failed; again in %.0f s", _RETRY_SECONDS)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _run_term(self) -> None:
        self._slots.begin_term()
        try:
            await self._term.run()
        finally:
            self._slots.end_term()

    async def _serve_grants(self) -> None:
        config, world = self._config, self._cache
        account = AgentAccount(config.namespace, config.agent_service_account)
        store = KubeAuthorityStore(self._kube, config.namespace)
        plan = RotationPlan.of(config.authority_max_age_seconds, config.authority_overlap_seconds)
        now = self._clock.now
        certificate = ServingCertificate(store, config.grants_names, now=now, plan=plan)
        self._metrics.tell_certificates(certificate.list_expiries, certificate.rotation_due_at)
        monotonic = self._clock.monotonic
        credentials = PeerCredentials(lambda: certificate.authority, life=plan.overlap, now=now)
        peering = Peering(
            world,
            credentials,
            may_claim=self._is_leader,
            now=lambda: now().timestamp(),
            clock=monotonic,
            settings=PeeringSettings(config.peer_topology),
        )
        service = GrantService(
            world,
            self._manifests,
            self._sources,
            peering=peering if config.peers else None,
            slots=self._slots,
            on_adopted=self._on_adopted,
            on_source_missing=self._on_source_missing,
        )
        callers = KubeCallers(self._kube)
        pods = PodDoor(
            service,
            PodAuthenticator(callers, account, clock=monotonic),
            world,
            clock=monotonic,
            is_open=config.grants_for_pods,
        )
        server = GrantsServer(
            service,
            Authenticator(callers, world, account, clock=monotonic),
            world,
            clock=monotonic,
            observe=self._metrics.grant_answer,
            credentials=credentials if config.peers else None,
        )
        context = await _until_it_works(certificate.ensure, "the serving certificate")
        bind = config.grants_bind
        start = server.start(bind.host, bind.port, context, pods.routes)
        port = await _listen(start, "--grants-bind")
        _log.info("grants on port %d", port)
        self._is_serving_grants = True
        try:
            await certificate.keep_fresh()
        finally:
            await server.stop()

    def _relist_soon(self) -> None:
        self._relister.ask()

    def _pass_leases(self, leases: tuple[AgentLeaseView, ...]) -> None:
        self._term.on_leases(leases)

    def _on_route(self, route: ObjectKey) -> None:
        if self._is_leader():
            self._term.router.on_route(route)

    def _on_any_route(self) -> None:
        if self._is_leader():
            self._term.router.look_at_routes()

    def _on_adopted(self, uid: Uid) -> None:
        version = self._cache.model_version(uid)
        if version is not None and self._is_leader():
            self._queue.add(version_key(version.key))

    def _on_source_missing(self, uid: Uid) -> None:
        # Agents ask again and again, and of the replicas in turn: the leader hears of it.
        version = self._cache.model_version(uid)
        if version is not None and self._is_leader():
            self._term.resolver.look_for_source(version)

    def _complain_of_readiness(self) -> str | None:
        if not self._cache.is_synced:
            return _NOT_CONTACTED
        return None if self._is_serving_grants else "grants are not served yet"

    def _make_queue(
        self, name: str, is_patient: Callable[[Key], bool] = lambda _key: False
    ) -> WorkQueue:
        queue = WorkQueue(self._metrics, uniform=random.uniform, is_patient=is_patient)
        self._metrics.watch_queue(name, lambda: queue.depth)
        return queue

    def _make_term(self, sources: Sources, manifests: Manifests) -> Term:
        config, cache, queue = self._config, self._cache, self._queue
        events = KubeEvents(self._kube, instance=config.identity, monotonic=self._clock.monotonic)
        writer = self._make_writer()
        core = make_core(
            CoreParts(
                cache,
                self._clock,
                writer,
                events,
                sources,
                manifests,
                queue,
                self._make_queue("resolve"),
                self._make_queue("recheck"),
                self._make_queue("gate"),
                random.uniform,
                routes=KubeRoutes(self._kube, writer.begin_write) if config.http_routes else None,
                measures=_make_measures(config),
                default_quota=self._default_quota.current,
                on_missed_looks=self._metrics.missed_source_checks,
            ),
            CoreTimes(
                LivenessLimits.of(
                    config.agent_lost_after_seconds, config.lease_list_interval_seconds
                ),
                gate_timeout_seconds=config.gate_timeout_seconds,
                node_ready_timeout_seconds=config.node_ready_timeout_seconds,
            ),
        )
        lister = AgentLeaseLister(
            self._kube,
            config.namespace,
            interval_seconds=config.lease_list_interval_seconds,
            on_leases=self._pass_leases,
        )
        return Term(
            cache,
            core.memory,
            queue,
            core.router,
            core.reconciler,
            core.resolver,
            core.rechecker,
            core.gates,
            config.workers,
            list_everything=self._relister.list_all,
            list_leases=lister.run,
            tell_events=events.run,
            subscribe=cache.subscribe,
            unsubscribe=cache.unsubscribe,
        )

    def _make_writer(self) -> KubeWriter:
        rate = self._config.api_writes_per_second
        return KubeWriter(
            self._kube,
            self._cache,
            TokenBucket(rate, int(2 * rate)),
            namespace=self._config.namespace,
            may_write=self._is_leader,
        )


def _make_measures(config: OperatorConfig) -> PrometheusServer | None:
    if config.prometheus_url is None:
        return None
    return PrometheusServer(
        config.prometheus_url, config.prometheus_ca_file, config.prometheus_token_file
    )


async def _until_it_works(act: Callable[[], Awaitable[_T]], what: str) -> _T:
    while True:
        try:
            return await act()
        except (KubeError, AuthorityDamagedError) as error:
            _log.warning("%s: %s; again in %.0f s", what, error, _RETRY_SECONDS)
        await asyncio.sleep(_RETRY_SECONDS)


async def _listen(start: Awaitable[int], option: str) -> int:
    try:
        return await start
    except OSError as error:
        raise StartupError(f"{option}: cannot listen: {error}") from error


def _log_election(error: KubeError) -> None:
    _log.warning("leader election: %s", error)
