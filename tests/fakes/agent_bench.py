"""The whole agent in this process: real store, real transfers, a played cluster and operator."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.grants_server import GrantedVersion, GrantsServer
from fakes.played_cluster import PlayedCluster
from fakes.range_server import RangeServer, Served
from modelcache_agent.agent import Surroundings, running
from modelcache_agent.config import parse_config
from modelcache_agent.decide.watermarks import NO_WATERMARKS, Watermarks
from modelcache_agent.identity import NodeIdentity
from modelcache_agent.tiers.recovery import open_store
from modelcache_api.labels import make_node_label_key
from modelcache_api.v1alpha1.cache_node import EntrySpec


@dataclass(repr=False)
class Bench:
    """Everything around one agent. `started` may be entered again and again: restarts."""

    root: Path
    grants: GrantsServer
    objects: RangeServer
    cluster: PlayedCluster
    capacity: int = 1 << 30
    watermarks: Watermarks = NO_WATERMARKS

    def offer(self, uid, bodies, **granted) -> GrantedVersion:
        version = GrantedVersion(bodies, etag=hashlib.sha256(uid.encode()).hexdigest(), **granted)
        self.grants.versions[uid] = version
        for path, body in bodies.items():
            self.objects.objects[f"{uid}/{path}"] = Served.of(body, version.etag)
        return version

    def entry(self, uid, *, known=True, evictable=False, model="org/model") -> EntrySpec:
        version = self.grants.versions[uid]
        digest = version.content_digest
        return EntrySpec(
            uid=uid,
            source_digest=version.source.digest,
            content_digest=digest if known else None,
            label_key=make_node_label_key("models", uid, digest) if known else None,
            size_bytes=version.source.size_bytes,
            model=model,
            evictable=evictable,
        )

    def tree(self, uid):
        digest = self.grants.versions[uid].content_digest
        return self.root / "versions" / digest.removeprefix("sha256:")

    @asynccontextmanager
    async def started(self, *extra, step=lambda _name: None):
        config = parse_config(
            [
                f"--store={self.root}",
                f"--operator-url={self.grants.url}",
                f"--operator-ca-file={self.grants.write_ca(self.root.parent)}",
                "--metrics-port=0",
                *extra,
            ],
            {},
        )
        opened = open_store(self.root, node_uid="node-1", step=step)
        identity = NodeIdentity("n1", "node-1")
        around = Surroundings(config, identity, opened.store, self.capacity, self.watermarks)
        try:
            async with running(around, self.cluster) as tasks:
                yield tasks
        finally:
            opened.close()

    async def until(self, condition, what="", seconds=15.0) -> None:
        for _ in range(int(seconds / 0.02)):
            if condition():
                return
            await asyncio.sleep(0.02)
        pytest.fail(f"in vain: {what} (entries: {self.cluster.status.entries})")

    async def until_state(self, uid, state, reason=None) -> None:
        def reached():
            found = self.cluster.state(uid)
            return found is not None and found[0] == state and reason in {None, found[1]}

        await self.until(reached, f"{uid} to be {state}")


@contextmanager
def open_bench(folder: Path) -> Iterator[Bench]:
    """A bench with an empty store below the folder."""
    root = folder / "store"
    root.mkdir()
    with (
        RangeServer() as objects,
        GrantsServer(lambda uid, path: objects.url(f"{uid}/{path}")) as grants,
    ):
        yield Bench(root, grants, objects, PlayedCluster())
