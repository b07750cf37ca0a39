"""From a real S3 store to a node's disk: the operator's door, a whole agent, its engine."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fakes.agent_bench import Bench
from fakes.announcing_store import AnnouncingStore
from fakes.fetch_world import safetensors_body
from fakes.hub_door import HubDoor
from fakes.played_cluster import PlayedCluster
from fakes.source_world import FakeKeyedData, make_sources, make_version
from fakes.store_world import read_tree, tree_of
from modelcache_operator.decide.world import ModelVersionView
from modelcache_testbed.bucket import Bucket
from modelcache_testbed.seaweed import Seaweed

MIB = 1 << 20
WEIGHTS = safetensors_body(17 * MIB)
MODEL = {"config.json": b"{}", "model.safetensors": WEIGHTS}


@dataclass
class S3Node:
    """One agent, its operator, and a store."""

    store: AnnouncingStore
    door: HubDoor
    bench: Bench
    folder: Path

    @property
    def bucket(self) -> Bucket:
        return self.store.bucket

    def put_model(
        self, prefix: str = "m", *, stated: Callable[[bytes], dict[str, str]] = lambda _: {}
    ) -> None:
        """Store the model; `stated` gives the checksum that is stored with each body."""
        for path, body in MODEL.items():
            self.bucket.client.put_object(
                Bucket=self.bucket.name, Key=f"{prefix}/{path}", Body=body, **stated(body)
            )

    def version(self, uid: str = "v1", prefix: str = "m", **more: object) -> ModelVersionView:
        uri = f"s3://{self.bucket.name}/{prefix}"
        return make_version(uri, endpoint=self.store.endpoint, secret="store", uid=uid, **more)

    async def want(self, uid: str = "v1", prefix: str = "m", **more: object) -> None:
        """Resolve it, and place it beside what is there."""
        entry = await self.door.resolve(self.version(uid, prefix, **more))
        self.bench.cluster.want(*self.bench.cluster.entries, entry)

    async def holds(self, uid: str = "v1") -> dict[str, bytes]:
        """Wait until the version is cached; its files."""
        await self._until(uid, "Cached")
        return read_tree(tree_of(self.bench.root, self.door.manifests.contents[uid].digest))

    async def fails(self, uid: str = "v1") -> tuple[str, str]:
        """Wait until the version has failed; reason and message."""
        await self._until(uid, "Failed")
        entry = self.bench.cluster.entry(uid)
        return entry.reason, entry.message

    async def _until(self, uid: str, state: str) -> None:
        def reached() -> bool:
            found = self.bench.cluster.state(uid)
            return found is not None and found[0] == state

        await self.bench.until(reached, f"{uid} to be {state}", seconds=60)

    def started(self, *extra: str):
        token = self.door.write_token(self.folder)
        return self.bench.started(f"--grant-token-file={token}", *extra)


@asynccontextmanager
async def s3_node(seaweed: Seaweed, data: FakeKeyedData, folder: Path) -> AsyncIterator[S3Node]:
    """A bucket of its own in the store, read through the stand-in."""
    data.put_credentials("store", seaweed.access_key, seaweed.secret_key)
    sources = make_sources(data)
    door = HubDoor(sources)
    await door.open()
    (folder / "store").mkdir()
    with AnnouncingStore(Bucket(seaweed, f"models-{secrets.token_hex(4)}")) as store:
        yield S3Node(store, door, Bench(folder / "store", door, None, PlayedCluster()), folder)
    await door.close()
    await sources.close()
