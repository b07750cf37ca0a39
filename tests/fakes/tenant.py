"""A tenant on a stage: pods that name a ModelCache, and short ways to ask about them."""

from __future__ import annotations

import asyncio
from typing import Any

from fakes.stage import Stage
from modelcache_kube import NODES, PODS

GATE = "modelcache.io/placement"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Tenant:
    """Pods of one stage's namespace. They are bound but never run, unless told so."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.kube = stage.kube

    async def run_pod(
        self,
        name: str,
        *,
        cache: str | None = "c1",
        on: str | None = None,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """A pod kept to this stage's nodes, or to one of them."""
        chosen = dict(labels or {})
        if cache is not None:
            chosen["modelcache.io/cache"] = cache
        selector = {"stage": self.stage.name, **spec.pop("nodeSelector", {})}
        if on is not None:
            selector["kubernetes.io/hostname"] = on
        body = {
            "metadata": {"name": name, "namespace": self.stage.namespace, "labels": chosen},
            "spec": {
                "containers": [{"name": "app", "image": "app"}],
                "nodeSelector": selector,
                "terminationGracePeriodSeconds": 0,
                **spec,
            },
        }
        await self.kube.create(PODS, body)

    async def delete_pod(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self.stage.namespace}/pods/{name}"
        await asyncio.to_thread(self.stage.cluster.api.delete, path, {"gracePeriodSeconds": 0})

    async def make_ready(self, name: str) -> None:
        """What a kubelet says of a pod that answers its probes."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.kube.merge_patch(
            *(PODS, name, {"status": status}),
            namespace=self.stage.namespace,
            subresource="status",
        )

    async def show_canary(self, name: str, version: str) -> None:
        """What the agent of the pod's node says of it, once it is bound and its volume complete."""
        await self.stage.until(lambda: self.node_of(name), lambda node: node is not None)
        pod, shown = await self.pod(name), await self.stage.version(version)
        row = {"uid": pod["metadata"]["uid"], "version": shown["metadata"]["uid"]}
        self.stage.fleet.change(pod["spec"]["nodeName"], canary_pods=[row])

    async def finish_pod(self, name: str, phase: str = "Succeeded") -> None:
        await self.kube.merge_patch(
            PODS,
            name,
            {"status": {"phase": phase}},
            namespace=self.stage.namespace,
            subresource="status",
        )

    async def pod(self, name: str) -> dict[str, Any]:
        return await self.kube.get(PODS, name, self.stage.namespace) or {}

    async def node_of(self, name: str) -> str | None:
        return (await self.pod(name)).get("spec", {}).get("nodeName")

    async def gates_of(self, name: str) -> list[str]:
        found = (await self.pod(name))["spec"].get("schedulingGates", [])
        return [gate["name"] for gate in found]

    async def required_terms_of(self, name: str) -> list[dict[str, Any]]:
        affinity = (await self.pod(name))["spec"].get("affinity", {}).get("nodeAffinity", {})
        return affinity.get(REQUIRED, {}).get("nodeSelectorTerms", [])

    async def events_of(self, name: str) -> list[tuple[str, str]]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.stage.namespace}/events"
        found = await asyncio.to_thread(self.stage.cluster.api.get, path)
        return [
            (event["reason"], event["note"])
            for event in found["items"]
            if event["regarding"]["name"] == name
            and event["reportingController"] == "modelcache-operator"
        ]

    async def origins_on(self, node: str) -> list[str]:
        """Origins of the entries that a node should hold."""
        found = await self.stage.cache_node(node) or {"spec": {}}
        return sorted(entry["origin"] for entry in found["spec"].get("entries", []))

    async def demanded(self, cache: str = "c1") -> int:
        found = (await self.stage.cache(cache)).get("status", {}).get("copies", {})
        return found.get("demanded", 0)

    async def taints_of(self, node: str) -> list[str]:
        found = await self.kube.get(NODES, node) or {"spec": {}}
        return [taint["key"] for taint in found["spec"].get("taints", [])]

    async def patch_node(self, node: str, spec: dict[str, Any]) -> None:
        await self.kube.merge_patch(NODES, node, {"spec": spec})
