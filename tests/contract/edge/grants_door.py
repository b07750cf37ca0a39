"""A grants server on a real API server and a real store, and an agent's hand to knock with."""

from __future__ import annotations

import json
import secrets
import ssl
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import aiohttp

from builders import make_condition
from fakes.fetch_world import content_of
from fakes.seen_world import SeenWorld
from fakes.source_world import FakeKeyedData, make_sources, make_version
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.v1alpha1.model_version import ModelVersionStatus
from modelcache_operator.adapters.authority_store import KubeAuthorityStore
from modelcache_operator.adapters.callers import KubeCallers
from modelcache_operator.adapters.manifest_store import ConfigMapManifests
from modelcache_operator.decide.grant_access import AgentAccount
from modelcache_operator.decide.world import ObjectKey, Uid
from modelcache_operator.grant_authentication import AuthenticationSettings, Authenticator
from modelcache_operator.grants import GrantService
from modelcache_operator.grants_server import GrantsServer, ServerSettings
from modelcache_operator.pod_authentication import PodAuthenticator
from modelcache_operator.pod_door import PodDoor
from modelcache_operator.serving_certificate import ServingCertificate

# What the API server said is believed for moments, so that tests need not wait.
BRIEFLY = AuthenticationSettings(token_seconds=0.5, refused_seconds=0, pod_seconds=0.1)


class Door:
    """The server under test. `world` is what it has seen of the cluster."""

    def __init__(self, kube, system, store, bucket) -> None:
        self.world = SeenWorld()
        self.data = FakeKeyedData()
        self.data.put_credentials("store", store.access_key, store.secret_key)
        self.sources = make_sources(self.data)
        self.manifests = ConfigMapManifests(kube, system)
        self.adopted: list[Uid] = []
        self.answers: list[tuple[str, int]] = []
        self.is_open_for_pods = True
        self._bucket = bucket
        self._kube = kube
        self._system = system
        self._server: GrantsServer | None = None
        self._port = 0
        self._trust: ssl.SSLContext | None = None

    async def open(self, settings: ServerSettings | None = None) -> None:
        authority = KubeAuthorityStore(self._kube, self._system)
        certificate = ServingCertificate(authority, ["127.0.0.1"], now=lambda: datetime.now(UTC))
        tls = await certificate.ensure()
        pair = await authority.read()
        self.authority = pair.current.certificate.decode()
        self._trust = ssl.create_default_context(cadata=self.authority)
        authenticator = Authenticator(
            KubeCallers(self._kube),
            self.world,
            AgentAccount(self._system, "modelcache-agent"),
            clock=time.monotonic,
            settings=BRIEFLY,
        )
        service = GrantService(
            self.world, self.manifests, self.sources, on_adopted=self.adopted.append
        )
        callers, agents = KubeCallers(self._kube), AgentAccount(self._system, "modelcache-agent")
        pods = PodDoor(
            service,
            PodAuthenticator(callers, agents, clock=time.monotonic, settings=BRIEFLY),
            self.world,
            clock=time.monotonic,
            is_open=self.is_open_for_pods,
        )
        self._server = GrantsServer(
            service,
            authenticator,
            self.world,
            clock=time.monotonic,
            settings=settings,
            observe=lambda *answer: self.answers.append(answer),
        )
        self._port = await self._server.start("127.0.0.1", 0, tls, pods.routes)

    async def reopen(self, settings: ServerSettings) -> None:
        assert self._server is not None
        await self._server.stop()
        await self.open(settings)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop()
        await self.sources.close()

    async def add_version(self, files: dict[str, bytes], **spec: Any) -> EntrySpec:
        """Put a model into the bucket, resolve it and keep its manifest; the entry for a node."""
        prefix = secrets.token_hex(4)
        for path, body in files.items():
            self._bucket.put(f"{prefix}/{path}", body)
        version = make_version(
            f"s3://{self._bucket.name}/{prefix}",
            endpoint=spec.pop("endpoint", self._bucket.store.endpoint),
            secret="store",
            uid=f"uid-{prefix}",
            **spec,
        )
        source = await self.sources.resolve(version)
        await self.manifests.put_source(version.uid, source)
        self.world.versions[version.uid] = version
        return EntrySpec(uid=version.uid, source_digest=source.digest, size_bytes=source.size_bytes)

    async def post(
        self, path: str, token: str | None, body: Any, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """(status, parsed body, headers) of one request over HTTPS."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, bytes) or hasattr(body, "__aiter__") else json.dumps(body)
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{self._port}{path}"
            async with session.post(url, data=data, headers=headers, ssl=self._trust) as answer:
                text = await answer.text()
                return answer.status, json.loads(text), dict(answer.headers)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def make_ready(self, entry: EntrySpec, namespace: str, name: str, **status: Any) -> None:
        """The version of this entry is what the name stands for, and Ready."""
        ready = make_condition("Resolved")
        known = {"source_digest": entry.source_digest, "size_bytes": entry.size_bytes}
        version = self.world.versions[entry.uid]
        self.world.versions[entry.uid] = replace(
            version,
            key=ObjectKey(namespace, name),
            status=ModelVersionStatus(**{**known, "conditions": (ready,), **status}),
        )

    async def get_health(self) -> int:
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{self._port}/healthz"
            async with session.get(url, ssl=self._trust) as answer:
                return answer.status

    async def get(self, path: str, token: str) -> int:
        """The status of a GET."""
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{self.url}{path}", ssl=self._trust) as answer,
        ):
            return answer.status

    async def ask(self, token: str | None, *uids: str, **page: int) -> tuple[int, Any]:
        queries = [{"uid": uid, **page} for uid in uids]
        status, body, _ = await self.post("/v1/grants", token, {"entries": queries})
        return status, body


MODEL = {"config.json": b"{}", "model.safetensors": b"weights " * 100}


class Agent:
    """A played node and the credentials of the agent on it."""

    def __init__(self, cluster, system, folder, account="modelcache-agent") -> None:
        self.cluster = cluster
        self.name = f"node-{secrets.token_hex(4)}"
        self.uid = cluster.add_node(self.name)["metadata"]["uid"]
        self.credentials = cluster.agent_credentials(self.name, system, account, folder)

    @property
    def token(self) -> str:
        return self.credentials.grant_token_file.read_text()

    @property
    def api_token(self) -> str:
        return self.credentials.token_file.read_text()


def propose(entry, files=MODEL, **more):
    rows = [
        {
            "path": path,
            "sizeBytes": len(body),
            "sha256": content.sha256,
            "pieces": content.pieces,
        }
        for path, body in files.items()
        for content in (content_of(path, body),)
    ]
    return {"uid": entry.uid, "sourceDigest": entry.source_digest, "files": rows} | more
