"""The operator's own grants server over any sources, with manifests in memory and one agent."""

from __future__ import annotations

import time
from http import HTTPStatus
from pathlib import Path

from fakes.seen_world import SeenWorld
from fakes.tls_world import PrivateAuthority
from modelcache_api.manifest import ContentManifest, SourceManifest, pack_source, unpack_source
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.world import ModelVersionView, NodeName, Uid
from modelcache_operator.grant_authentication import DeniedError
from modelcache_operator.grants import GrantService
from modelcache_operator.grants_server import GrantsServer
from modelcache_operator.ports.manifests import AdoptedContent
from modelcache_operator.ports.sources import Sources
from modelcache_operator.sources.partial.loading import PartLoader

AGENT_TOKEN = "the agent's own token"
_CALLER = Caller(NodeName("n1"), Uid("node-1"), "agent", "pod-1")


class KeptManifests:
    """Source manifests packed, as ConfigMaps hold them; the first content wins."""

    def __init__(self) -> None:
        self.sources: dict[tuple[str, str], bytes] = {}
        self.contents: dict[str, ContentManifest] = {}

    def keep(self, uid: str, manifest: SourceManifest) -> None:
        self.sources[uid, manifest.digest] = pack_source(manifest)

    async def get_source(self, uid, digest):
        packed = self.sources.get((uid, digest))
        return None if packed is None else unpack_source(packed)

    async def get_content(self, uid):
        content = self.contents.get(uid)
        return None if content is None else AdoptedContent(content, content.digest)

    async def adopt_content(self, uid, manifest):
        adopted = self.contents.setdefault(uid, manifest)
        return AdoptedContent(adopted, adopted.digest)


class _OneAgent:
    async def authenticate(self, authorization):
        if authorization != f"Bearer {AGENT_TOKEN}":
            raise DeniedError(HTTPStatus.UNAUTHORIZED, "not this agent")
        return _CALLER


class HubDoor:
    """`url` and `write_ca` are what an agent is told."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.manifests = KeptManifests()
        self.world = SeenWorld()
        self.authority = PrivateAuthority()
        self.answers: list[tuple[str, int]] = []
        self._port = 0

    async def open(self) -> None:
        self._server = GrantsServer(
            GrantService(self.world, self.manifests, self.sources),
            _OneAgent(),
            self.world,
            clock=time.monotonic,
            observe=lambda *answer: self.answers.append(answer),
        )
        self._port = await self._server.start("127.0.0.1", 0, self.authority.context())

    async def close(self) -> None:
        await self._server.stop()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def write_ca(self, folder: Path) -> Path:
        path = folder / "operator-ca.crt"
        path.write_bytes(self.authority.pem)
        return path

    def write_token(self, folder: Path) -> Path:
        path = folder / "token"
        path.write_text(AGENT_TOKEN)
        return path

    async def resolve(self, version: ModelVersionView) -> EntrySpec:
        """Resolve the version and place it on the agent's node; the entry for the agent."""
        listed = await self.sources.resolve(version)
        manifest = await PartLoader(self.sources).cut(version, listed)
        self.manifests.keep(version.uid, manifest)
        self.world.versions[version.uid] = version
        entry = EntrySpec(
            uid=version.uid,
            source_digest=manifest.digest,
            size_bytes=manifest.size_bytes,
            model=version.spec.model,
            revision=manifest.revision,
        )
        node = self.world.cache_nodes.get("n1")
        others = [] if node is None else node.spec.entries
        self.world.add_node("n1", "node-1", [*others, entry])
        return entry
