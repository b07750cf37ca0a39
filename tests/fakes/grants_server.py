"""An operator's grant endpoint over HTTPS: signs nothing, adopts what is proposed first."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from fakes.fetch_world import content_of
from fakes.tls_world import PrivateAuthority
from modelcache_api.cut import Cut
from modelcache_api.manifest import (
    ContentFile,
    SourceFile,
    SourceManifest,
    make_content_manifest,
    make_source_manifest,
)
from modelcache_api.names import (
    PATH_GRANTS,
    PATH_POD_GRANTS,
    PATH_POD_VERSIONS,
    PATH_PROPOSALS,
    PATH_SLOTS,
)
from modelcache_api.pod_wire import PodVersion, PodVersionRequest
from modelcache_api.wire import (
    Grant,
    GrantedCut,
    GrantedFile,
    GrantRequest,
    GrantResponse,
    Proposal,
    ProposalResponse,
    SlotAnswer,
    WireError,
)


@dataclass
class GrantedVersion:
    """One ModelVersion: its bodies by path, and what is known of its content."""

    bodies: dict[str, bytes]
    etag: str = "v1"
    knows_content: bool = False
    stated: dict[str, str] = field(default_factory=dict)
    """sha256 that the source states, by path."""
    cuts: dict[str, Cut] = field(default_factory=dict)
    """What its bodies are of the source's files, by path."""
    adopted: str | None = None
    pin: str | None = None
    # In place of the sum of its files.
    sized_as: int | None = None
    error: WireError | None = None
    ca_bundle: str | None = None
    # Of proposals.
    refusal: WireError | None = None

    @property
    def source(self) -> SourceManifest:
        return make_source_manifest(
            SourceFile(path, len(body), f'"{self.etag}"', cut=self.cuts.get(path))
            for path, body in self.bodies.items()
        )

    @property
    def contents(self) -> dict[str, ContentFile]:
        return {path: content_of(path, body) for path, body in self.bodies.items()}

    @property
    def content_digest(self) -> str:
        return make_content_manifest(self.contents.values()).digest


@dataclass
class GrantsServer:
    """Grants `versions` (by uid); `url_of(uid, path)` says where their files are."""

    url_of: Callable[[str, str], str]
    versions: dict[str, GrantedVersion] = field(default_factory=dict)
    # What single pods may ask for by name: uids.
    names: dict[str, str] = field(default_factory=dict)
    page_files: int = 500
    lifetime_seconds: float = 3600.0
    failing_status: int | None = None
    failing_body: bytes = b"{}"
    slot: SlotAnswer | None = None
    """About every version: a limit of the fleet covers it."""
    tokens: list[str] = field(default_factory=list)
    requests: list[tuple[str, dict]] = field(default_factory=list)
    # The client's port of each request: one for each connection.
    callers: list[int] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.authority = PrivateAuthority()
        server = self

        class Handler(_Handler):
            world = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        context = self.authority.context()
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._http.server_address[1]}"

    def write_ca(self, folder: Path) -> Path:
        path = folder / "operator-ca.crt"
        path.write_bytes(self.authority.pem)
        return path

    def grant(self, uid: str, offset: int, limit: int) -> Grant:
        version = self.versions.get(uid)
        if version is None:
            return Grant(uid=uid, error=WireError(reason="NotKnownYet", message="no such entry"))
        if version.error is not None:
            return Grant(uid=uid, error=version.error)
        if self.slot is not None and not self.slot.is_granted and offset == 0:
            return Grant(uid=uid, source_digest=version.source.digest, slot=self.slot)
        files = version.source.files
        page = files[offset : offset + min(limit, self.page_files)]
        contents = version.contents if version.knows_content else {}
        return Grant(
            uid=uid,
            source_digest=version.source.digest,
            content_digest=version.content_digest if version.knows_content else None,
            total_files=len(files),
            offset=offset,
            files=tuple(
                self._file(uid, file, contents.get(file.path), version.stated.get(file.path))
                for file in page
            ),
            slot=self.slot,
            ca_bundle=version.ca_bundle,
        )

    def _file(
        self, uid: str, file: SourceFile, content: ContentFile | None, stated: str | None
    ) -> GrantedFile:
        return GrantedFile(
            path=file.path,
            size_bytes=file.size_bytes,
            etag=file.etag,
            url=self.url_of(uid, file.path),
            expires_at=time.time() + self.lifetime_seconds,
            sha256=content.sha256 if content else stated,
            pieces=content.pieces if content else (),
            cut=GrantedCut.of(file.cut),
        )

    def name(self, asked: PodVersionRequest) -> PodVersion:
        uid = self.names.get(asked.model_version or asked.model_cache or "")
        if uid is None:
            error = WireError(reason="ModelVersionNotFound", message="there is no such version")
            return PodVersion(error=error)
        version = self.versions[uid]
        if version.error is not None:
            return PodVersion(error=version.error)
        return PodVersion(
            uid=uid,
            namespace="search",
            name=asked.model_version or "stable",
            source_digest=version.source.digest,
            content_digest=version.content_digest if version.knows_content else version.pin,
            size_bytes=version.sized_as or version.source.size_bytes,
        )

    def adopt(self, proposal: Proposal) -> ProposalResponse:
        version = self.versions[proposal.uid]
        if version.refusal is not None:
            return ProposalResponse(error=version.refusal)
        files = (
            ContentFile(file.path, file.size_bytes, file.sha256, file.pieces)
            for file in proposal.files
        )
        digest = make_content_manifest(files).digest
        version.adopted = version.adopted or digest
        if version.adopted != digest:
            error = WireError(reason="DigestMismatch", message="another content was adopted")
            return ProposalResponse(content_digest=version.adopted, error=error)
        return ProposalResponse(content_digest=digest)


class _Handler(BaseHTTPRequestHandler):
    world: GrantsServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        world = self.world
        world.tokens.append(self.headers.get("Authorization", "").removeprefix("Bearer "))
        world.requests.append((self.path, json.loads(body)))
        world.callers.append(self.client_address[1])
        if world.failing_status is not None:
            self._answer(world.failing_status, world.failing_body)
        elif self.path == PATH_POD_VERSIONS:
            named = world.name(PodVersionRequest.model_validate_json(body))
            answer = named.model_dump_json(by_alias=True, exclude_none=True).encode()
            self._answer(409 if named.error else 200, answer)
        elif self.path in {PATH_GRANTS, PATH_POD_GRANTS}:
            asked = GrantRequest.model_validate_json(body)
            grants = tuple(world.grant(q.uid, q.offset, q.limit) for q in asked.entries)
            self._answer(200, GrantResponse(grants=grants).model_dump_json(by_alias=True).encode())
        elif self.path == PATH_SLOTS:
            answer = world.slot or SlotAnswer(is_limited=False)
            self._answer(200, answer.model_dump_json(by_alias=True).encode())
        elif self.path == PATH_PROPOSALS:
            answer = world.adopt(Proposal.model_validate_json(body))
            status = 409 if answer.error else 200
            self._answer(status, answer.model_dump_json(by_alias=True).encode())
        else:
            self._answer(404, b"{}")

    def _answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
