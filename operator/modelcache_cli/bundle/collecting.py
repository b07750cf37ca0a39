"""Reads what belongs into the archive. What cannot be read is told, and the rest is taken."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import yaml

from modelcache_api.decisions import Decisions
from modelcache_api.names import GROUP, Reason
from modelcache_cli.bundle.redaction import redact_object, redact_text
from modelcache_cli.checklist.observing import DAEMON_SETS, DEPLOYMENTS
from modelcache_cli.decisions import fetch_decisions
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import see_node
from modelcache_kube import (
    CACHE_NODES,
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    MODEL_CACHE_QUOTAS,
    MODEL_CACHES,
    MODEL_VERSIONS,
    NODES,
    PODS,
    KubeClient,
    KubeError,
    Resource,
)

Object = Mapping[str, Any]
_T = TypeVar("_T")
_OURS: Final = "app.kubernetes.io/name=modelcache"
# Settings of the chart; the other ConfigMaps are manifests of models, and large.
_SETTINGS: Final = ("modelcache-source-policy", "modelcache-limits")
_LIMIT_BYTES: Final = 5 * 1024**2
_MAX_EVENTS: Final = 2000
_NODE_STATUS: Final = ("conditions", "nodeInfo", "capacity", "allocatable")


@dataclass(frozen=True, slots=True)
class BundleRequest:
    """Whose objects, and how much of what is long. `namespace` None: all."""

    system: str
    namespace: str | None
    log_lines: int
    max_nodes: int


@dataclass(slots=True)
class Collected:
    """Files by path, without secrets, and what could not be read."""

    files: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def add_object(self, path: str, value: Any) -> None:
        """A file of YAML."""
        text = yaml.safe_dump(redact_object(value), sort_keys=False, width=1000)
        self.files[path] = text

    def add_text(self, path: str, text: str) -> None:
        """A file of lines."""
        self.files[path] = redact_text(text)

    async def attempt(self, what: str, work: Awaitable[_T]) -> _T | None:
        """What the work gives; None, and a line for the reader, if it cannot be had."""
        try:
            return await work
        except (CliError, KubeError) as error:
            self.missing.append(redact_text(f"{what}: {error}"))
            return None


async def collect(kube: KubeClient, request: BundleRequest) -> Collected:
    """Everything.

    Raises:
        CliError: nothing at all can be read.
    """
    got = Collected()
    if (version := await got.attempt("the cluster's version", kube.read_version())) is not None:
        got.add_object("cluster/version.yaml", version)
    for resource in (MODEL_VERSIONS, MODEL_CACHES, MODEL_CACHE_QUOTAS):
        await _collect_list(got, kube, resource, request.namespace, "objects")
    nodes = await _collect_list(got, kube, CACHE_NODES, None, "objects")
    await _collect_nodes(got, kube)
    await _collect_events(got, kube, request)
    for resource in (DEPLOYMENTS, DAEMON_SETS):
        await _collect_list(got, kube, resource, request.system, "system", selector=_OURS)
    await _collect_list(got, kube, LEASES, request.system, "system")
    await _collect_settings(got, kube, request.system)
    pods = await _collect_list(got, kube, PODS, request.system, "system", selector=_OURS)
    chosen = choose_nodes(nodes or (), request.max_nodes)
    if pods is not None:
        await _collect_logs(got, kube, request, choose_pods(pods, chosen))
    for node in chosen:
        await _collect_decisions(got, kube, node, request.system)
    if not got.files:
        raise CliError(f"nothing can be read: {got.missing[0]}")
    return got


async def _collect_list(
    got: Collected,
    kube: KubeClient,
    resource: Resource,
    namespace: str | None,
    folder: str,
    *,
    selector: str | None = None,
) -> Sequence[Object] | None:
    listing = kube.list(resource, namespace, label_selector=selector)
    if (found := await got.attempt(resource.plural, listing)) is None:
        return None
    got.add_object(f"{folder}/{resource.plural}.yaml", list(found.items))
    return found.items


async def _collect_nodes(got: Collected, kube: KubeClient) -> None:
    found = await got.attempt("nodes", kube.list(NODES))
    if found is not None:
        got.add_object("cluster/nodes.yaml", [trim_node(node) for node in found.items])


def trim_node(node: Object) -> dict[str, Any]:
    """What placement and agents depend on: labels, taints, room, conditions. Pure."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return {
        "name": node["metadata"]["name"],
        "uid": node["metadata"].get("uid"),
        "labels": node["metadata"].get("labels") or {},
        "taints": spec.get("taints") or [],
        "unschedulable": spec.get("unschedulable", False),
        **{key: status.get(key) for key in _NODE_STATUS},
    }


async def _collect_events(got: Collected, kube: KubeClient, request: BundleRequest) -> None:
    found = await got.attempt("events", kube.list(EVENTS, request.namespace))
    if found is None:
        return
    got.add_object("objects/events.yaml", choose_events(found.items, request.system))


def choose_events(events: Iterable[Object], system: str) -> list[Object]:
    """Those about our objects and in the system's namespace, the newest last. Pure."""
    ours = [
        event
        for event in events
        if str((event.get("regarding") or {}).get("apiVersion", "")).startswith(f"{GROUP}/")
        or event["metadata"].get("namespace") == system
    ]
    ours.sort(key=lambda event: str(event["metadata"].get("creationTimestamp") or ""))
    return ours[-_MAX_EVENTS:]


async def _collect_settings(got: Collected, kube: KubeClient, system: str) -> None:
    for name in _SETTINGS:
        found = await got.attempt(f"ConfigMap {name}", kube.get(CONFIG_MAPS, name, system))
        if found is not None:
            got.add_object(f"system/{name}.yaml", found)


async def _collect_logs(
    got: Collected, kube: KubeClient, request: BundleRequest, pods: Iterable[Object]
) -> None:
    for pod in pods:
        name = pod["metadata"]["name"]
        restarts = {
            one["name"]: one.get("restartCount", 0)
            for one in (pod.get("status") or {}).get("containerStatuses") or ()
        }
        for container in pod["spec"]["containers"]:
            inner = container["name"]
            for previous in (False, True)[: 1 + bool(restarts.get(inner))]:
                where = _Log(name, request.system, inner, previous)
                log = read_tail(kube, where, request.log_lines)
                path = f"logs/{name}/{inner}{'.previous' if previous else ''}.log"
                if (text := await got.attempt(path, log)) is not None:
                    got.add_text(path, text)


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of one run of a container."""

    pod: str
    namespace: str
    container: str
    previous: bool


async def read_tail(kube: KubeClient, log: _Log, lines: int) -> str:
    """The last lines, fewer where they are too long: a limit in bytes cuts off the newest."""
    while True:
        text = await kube.read_log(
            log.pod,
            log.namespace,
            container=log.container,
            tail_lines=lines,
            limit_bytes=_LIMIT_BYTES,
            previous=log.previous,
        )
        if len(text.encode()) < _LIMIT_BYTES or lines <= 1:
            return text
        lines //= 2


async def _collect_decisions(got: Collected, kube: KubeClient, node: str, system: str) -> None:
    work = fetch_decisions(kube, node, system)
    told = await got.attempt(f"decisions of node {node}", work)
    if told is not None:
        document = Decisions(decisions=told).model_dump(mode="json", by_alias=True)
        got.files[f"decisions/{node}.json"] = json.dumps(redact_object(document), indent=2) + "\n"


def choose_nodes(cache_nodes: Iterable[Object], most: int) -> list[str]:
    """The nodes to look at closely: those that are not well first. Pure."""
    ordered = sorted((_is_well(raw), str(raw["metadata"]["name"])) for raw in cache_nodes)
    return [name for _, name in ordered[:most]]


def _is_well(raw: Object) -> bool:
    """What another release wrote is looked at closely, too."""
    try:
        node = see_node(raw)
    except CliError:
        return False
    return node.is_alive and node.finding.reason == Reason.AGENT_ALIVE


def choose_pods(pods: Iterable[Object], nodes: Sequence[str]) -> list[Object]:
    """The operator's, the webhook's, and the agents' of these nodes. Pure."""
    return [
        pod
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/component") != "agent"
        or pod["spec"].get("nodeName") in nodes
    ]
