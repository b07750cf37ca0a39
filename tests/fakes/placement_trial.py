"""One Deployment with its Service on many nodes of which few are warm: where do its pods land?"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fakes.stage import Stage
from modelcache_kube import PODS, Resource

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SERVICES = Resource("", "v1", "services", "Service")


@dataclass(frozen=True)
class Trial:
    """What is deployed. Without `cache` nothing is injected."""

    name: str
    replicas: int = 200
    cache: str | None = "c1"
    required: bool = False
    requests: dict[str, str] = field(default_factory=dict)

    def labels(self) -> dict[str, str]:
        labels = {"app": self.name}
        if self.cache is not None:
            labels["modelcache.io/cache"] = self.cache
        if self.required:
            labels["modelcache.io/placement"] = "required"
        return labels


async def make_ground(stage: Stage, nodes: int, warm: int) -> set[str]:
    """Nodes, of which `warm` hold the model; the names of those."""
    await stage.add_nodes(warm)
    await stage.add_nodes(nodes - warm, agent=False)
    await stage.apply_version()
    await stage.apply_cache(copies=warm)
    await stage.until_cached(copies=f"{warm}/{warm}", seconds=120)
    await stage.until(stage.labels, lambda found: len(found) == warm, seconds=60)
    return set(await stage.labels())


async def run_trial(stage: Stage, trial: Trial, *, seconds: float = 240) -> Counter[str]:
    """Pods by node, once all are bound. With its Service, so that default spreading is at work."""
    metadata = {"name": trial.name, "namespace": stage.namespace}
    ports = [{"port": 80}]
    selector = {"app": trial.name}
    service = {"metadata": metadata, "spec": {"selector": selector, "ports": ports}}
    await stage.kube.create(SERVICES, service)
    container: dict[str, Any] = {
        "name": "app",
        "image": "app",
        "resources": {"requests": trial.requests},
    }
    template = {
        "metadata": {"labels": trial.labels()},
        "spec": {"containers": [container], "nodeSelector": {"stage": stage.name}},
    }
    await stage.kube.create(
        DEPLOYMENTS,
        {
            "metadata": metadata,
            "spec": {
                "replicas": trial.replicas,
                "selector": {"matchLabels": {"app": trial.name}},
                "template": template,
            },
        },
    )
    await stage.until(
        lambda: _bound(stage, trial), lambda found: found.total() == trial.replicas, seconds=seconds
    )
    return await _bound(stage, trial)


async def end_trial(stage: Stage, trial: Trial) -> None:
    """Take everything away, so that the next trial finds the nodes empty."""
    await stage.kube.delete(DEPLOYMENTS, trial.name, stage.namespace)
    await stage.kube.delete(SERVICES, trial.name, stage.namespace)
    await stage.until(lambda: _living(stage, trial), 0, seconds=120)


async def _living(stage: Stage, trial: Trial) -> int:
    """Pods that are there. No kubelet ends those that are bound: that is done here."""
    listed = await stage.kube.list(PODS, stage.namespace, label_selector=f"app={trial.name}")
    path = f"/api/v1/namespaces/{stage.namespace}/pods"
    for item in listed.items:
        name = item["metadata"]["name"]
        now = {"gracePeriodSeconds": 0}
        await asyncio.to_thread(stage.cluster.api.delete, f"{path}/{name}", now)
    return len(listed.items)


async def _bound(stage: Stage, trial: Trial) -> Counter[str]:
    listed = await stage.kube.list(PODS, stage.namespace, label_selector=f"app={trial.name}")
    nodes = (item["spec"].get("nodeName") for item in listed.items)
    return Counter(node for node in nodes if node is not None)


def share_on(found: Counter[str], warm: set[str]) -> float:
    """The share of pods on warm nodes, in percent."""
    return 100.0 * sum(count for node, count in found.items() if node in warm) / found.total()
