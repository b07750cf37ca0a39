"""One agent, its operator's door and a stand-in for the hub: only hub and CDN are not real."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fakes.agent_bench import Bench
from fakes.fetch_world import safetensors_body
from fakes.hub_door import HubDoor
from fakes.hub_server import HubServer
from fakes.source_world import make_version
from fakes.store_world import read_tree, tree_of
from modelcache_api.v1alpha1.cache_node import CacheNodeStatus

WEIGHTS = safetensors_body(33 << 20)
MODEL = {"config.json": b"{}", "1_Pooling/config.json": b"{ }", "model.safetensors": WEIGHTS}
PRIVATE = {"is_private": True, "admitted": {"hf_example"}}


@dataclass
class HubNode:
    """One agent, its operator and a hub."""

    hub: HubServer
    door: HubDoor
    bench: Bench
    folder: Path

    def started(self, *extra):
        token = self.door.write_token(self.folder)
        return self.bench.started(f"--grant-token-file={token}", *extra)

    def forget_status(self) -> None:
        """What the agent says from now on it says anew: its CacheNode's status is empty."""
        self.bench.cluster.status = CacheNodeStatus()
        self.bench.cluster.nudge()

    async def want(self, version) -> None:
        """Resolve it, and place it beside what is there."""
        entry = await self.door.resolve(version)
        self.bench.cluster.want(*self.bench.cluster.entries, entry)

    async def holds(self, uid="v1"):
        """Wait until the version is cached; its files."""
        await self.bench.until_state(uid, "Cached")
        return read_tree(tree_of(self.bench.root, self.door.manifests.contents[uid].digest))

    def version(self, uid="v1", uri="hf://org/name", **more):
        return make_version(uri, endpoint=self.hub.url, uid=uid, **more)

    @property
    def cdn_bytes(self) -> int:
        return self.hub.cdn.sent_bytes
