"""`modelcache-operator cleanup`: what must be gone from a cluster after an uninstall.

First operator and agents lose their rights, so that nothing is written again by whatever still
runs; then their labels, CacheNodes, Leases, manifests and authority go. May be run again at any
time, with anything missing. ModelVersions, ModelCaches and quotas are users' own, and stay; so does
what is on the nodes' disks.

It refuses while pods have volumes of ours: without the driver the kubelet cannot unmount them, and
such pods never end.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from kubernetes.aio.config import ConfigException

from modelcache_api import names
from modelcache_kube import (
    CACHE_NODES,
    LEASES,
    NODES,
    PODS,
    ConnectConfig,
    KubeClient,
    KubeError,
    NotFound,
    Resource,
    connect,
)
from modelcache_kube.resources import CONFIG_MAPS, SECRETS
from modelcache_operator.logs import set_up_logs

_RBAC: Final = ("rbac.authorization.k8s.io", "v1")
_CLUSTER_BINDINGS: Final = Resource(
    *_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
_BINDINGS: Final = Resource(*_RBAC, "rolebindings", "RoleBinding")
_ACCOUNTS: Final = (names.MANAGER_OPERATOR, names.MANAGER_AGENT)
_AT_ONCE: Final = 8
# An API server's authorizer sees a deleted binding after some milliseconds.
_PAUSE_SECONDS: Final = 1.0
_FAILED: Final = 1
_BAD_OPTIONS: Final = 2
_IN_USE: Final = 3
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_MOST_NAMED: Final = 5
_log = logging.getLogger(__name__)


class InUseError(Exception):
    """Pods have volumes of ours; one sentence with the cure."""


class CleanUp:
    """One cluster's. Raises KubeError."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace

    async def run(self) -> None:
        """Sweep until a sweep finds nothing."""
        await self._take_rights()
        while count := await self._sweep():
            _log.info("removed %d things; looking again", count)
            await asyncio.sleep(_PAUSE_SECONDS)
        _log.info("nothing of ours is left on nodes and in namespace %s", self._namespace)

    async def check_use(self) -> None:
        """Nothing is changed. Raises InUseError if pods would be left with their volumes."""
        listed = await self._kube.list(PODS, label_selector=names.LABEL_CACHE)
        users = sorted(
            f"{pod['metadata']['namespace']}/{_name(pod)}" for pod in listed.items if _mounts(pod)
        )
        if users:
            shown = ", ".join(users[:_MOST_NAMED]) + (", ..." if users[_MOST_NAMED:] else "")
            raise InUseError(
                f"{len(users)} pods have volumes of ModelCache ({shown}) and could not end without "
                "it: delete them first (or say --force, and install ModelCache again to end them)"
            )

    async def _take_rights(self) -> None:
        for account in _ACCOUNTS:
            await self._delete(_CLUSTER_BINDINGS, account)
            await self._delete(_BINDINGS, account, self._namespace)

    async def _sweep(self) -> int:
        kube, namespace = self._kube, self._namespace
        leases = await kube.list(LEASES, namespace, label_selector=names.LABEL_AGENT_LEASE)
        manifests = await kube.list(
            CONFIG_MAPS, namespace, label_selector=names.LABEL_MANIFEST_KIND
        )
        work: list[Awaitable[bool]] = [
            self._take_labels(node) for node in (await kube.list(NODES)).items if _labels(node)
        ]
        work += [self._delete(CACHE_NODES, name) for name in await self._cache_nodes()]
        work += [self._delete(LEASES, _name(lease), namespace) for lease in leases.items]
        work += [self._delete(CONFIG_MAPS, _name(item), namespace) for item in manifests.items]
        work += [
            self._delete(LEASES, names.LEADER_LEASE, namespace),
            self._delete(CONFIG_MAPS, names.CA_CONFIG_MAP, namespace),
            self._delete(SECRETS, names.CA_SECRET, namespace),
        ]
        return sum(await _gather(work))

    async def _cache_nodes(self) -> list[str]:
        try:
            listed = await self._kube.list(CACHE_NODES)
        except NotFound:
            return []  # their definition is gone, and they with it
        return [_name(item) for item in listed.items]

    async def _take_labels(self, node: dict[str, Any]) -> bool:
        removed: dict[str, None] = dict.fromkeys(_labels(node))
        body = {"metadata": {"uid": node["metadata"]["uid"], "labels": removed}}
        try:
            await self._kube.merge_patch(NODES, _name(node), body)
        except NotFound:
            return False
        _log.info("took %d labels off node %s", len(removed), _name(node))
        return True

    async def _delete(self, resource: Resource, name: str, namespace: str | None = None) -> bool:
        return await self._kube.delete(resource, name, namespace)


def _name(item: dict[str, Any]) -> str:
    return str(item["metadata"]["name"])


def _mounts(pod: dict[str, Any]) -> bool:
    spec = pod["spec"]
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _ENDED:
        return False
    drivers = ((volume.get("csi") or {}).get("driver") for volume in spec.get("volumes") or ())
    return names.CSI_DRIVER in drivers


def _labels(node: dict[str, Any]) -> list[str]:
    labels = node["metadata"].get("labels") or {}
    return sorted(key for key in labels if key.startswith(names.NODE_LABEL_PREFIX))


async def _gather(work: Iterable[Awaitable[bool]]) -> list[bool]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def pass_gate(item: Awaitable[bool]) -> bool:
        async with gate:
            return await item

    return await asyncio.gather(*(pass_gate(item) for item in work))


def main(arguments: Sequence[str]) -> int:
    """The command: 0 if nothing is left."""
    parser = argparse.ArgumentParser(prog="modelcache-operator cleanup", description=__doc__)
    parser.add_argument("--namespace", default="modelcache-system", help="the release's own")
    parser.add_argument("--kubeconfig", type=Path, help="file; the pod's account without it")
    parser.add_argument("--timeout", type=float, default=100.0, help="seconds (default 100)")
    parser.add_argument("--force", action="store_true", help="even if pods have volumes of ours")
    options = parser.parse_args(arguments)
    set_up_logs("info")
    try:
        asyncio.run(_run(options))
    except InUseError as error:
        return _complain(str(error), _IN_USE)
    except ConfigException as error:
        return _complain(f"--kubeconfig: no usable credentials: {error}", _BAD_OPTIONS)
    except TimeoutError:
        return _complain(f"not done after {options.timeout:.0f} s (--timeout)", _FAILED)
    except KubeError as error:
        return _complain(str(error), _FAILED)
    return 0


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"modelcache-operator cleanup: {message}\n")
    return code


async def _run(options: argparse.Namespace) -> None:
    agent = f"{names.MANAGER_OPERATOR}-cleanup"
    wanted = ConnectConfig(kubeconfig=options.kubeconfig, user_agent=agent)
    async with asyncio.timeout(options.timeout), connect(wanted) as kube:
        clean_up = CleanUp(kube, options.namespace)
        if not options.force:
            await clean_up.check_use()
        await clean_up.run()
