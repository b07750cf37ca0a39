"""Nodes that serve each other over mutual TLS on loopback, with an authority of the test's own."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from fakes.fault_proxy import FaultProxy
from fakes.fetch_world import Grants, content_of, make_job, quick, safetensors_body
from fakes.range_server import RangeServer, Served
from modelcache_agent.adapters.system_clock import SystemClock
from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.fetch import FetchEngine
from modelcache_agent.fetch.clock import SystemClock as FetchClock
from modelcache_agent.fetch.throttle import Throttle
from modelcache_agent.peers.book import PeerBook
from modelcache_agent.peers.credentials import PeerCredentials
from modelcache_agent.peers.server import PeerDoor, PeerServer
from modelcache_agent.peers.shelf import Offer
from modelcache_api.manifest import PIECE_BYTES, SourceFile
from modelcache_api.names import PATH_PEER_ENTRIES
from modelcache_api.peers import Ticket
from modelcache_api.wire import Holder, PeerGrant
from modelcache_operator.peer_credentials import PeerCredentials as Signer
from modelcache_operator.ports.authority import Authority
from modelcache_operator.tls import make_authority

UID = "uid-1"
US = "node-us"
PATH = "model.safetensors"
BODY = safetensors_body(3 * PIECE_BYTES + 1000, seed=9)


class FolderShelf:
    """Offers whatever lies in a folder, verified or not: so a lying node is made as well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, int]] = []

    def verified_bytes(self, uid: str, source_digest: str) -> int | None:
        return 1

    def find(self, uid: str, source_digest: str, path: str, start: int, end: int) -> Offer | None:
        self.asked.append((path, start))
        location = self.folder / path
        if not location.is_file():
            return None
        size = location.stat().st_size
        return Offer(location, start, min(end, size), size)


@dataclass
class PeerWorld:
    """One authority and its nodes."""

    authority: Authority = field(
        default_factory=lambda: Authority(make_authority(datetime.now(UTC)))
    )

    def signer(self, *, fast_by: timedelta = timedelta()) -> Signer:
        """The operator's; its clock is fast by so much."""
        now = lambda: datetime.now(UTC) + fast_by  # noqa: E731
        return Signer(lambda: self.authority, life=timedelta(hours=1), now=now)

    def credentials(self, node_uid: str, *, fast_by: timedelta = timedelta()) -> PeerCredentials:
        made = PeerCredentials()
        made.use(self.signer(fast_by=fast_by).certify(node_uid, made.public_key))
        return made

    def ticket(
        self, source_digest: str, *, node: str = US, uid: str = UID, seconds: float = 600
    ) -> str:
        signed = self.signer().sign(Ticket(node, uid, source_digest, time.time() + seconds))
        assert signed is not None
        return signed

    def book(self) -> PeerBook:
        return PeerBook(self.credentials(US), SystemClock())

    @contextmanager
    def node(
        self,
        node_uid: str,
        shelf,
        *,
        rate: int | None = None,
        slots: int = 8,
        credentials: PeerCredentials | None = None,
        fast_by: float = 0.0,
    ) -> Iterator[Holder]:
        """A node that serves the shelf. Its clock is fast by so many seconds."""
        door = PeerDoor(
            credentials=credentials or self.credentials(node_uid),
            shelf=shelf,
            throttle=None if rate is None else Throttle(Bandwidth(rate), FetchClock()),
            slots=threading.BoundedSemaphore(slots),
            now=lambda: time.time() + fast_by,
            count=lambda _count: None,
        )
        server = PeerServer(("127.0.0.1", 0), door)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield make_holder(node_uid, server.port)
        finally:
            server.close()
            thread.join()

    @contextmanager
    def faulty_node(self, node_uid: str, body: bytes) -> Iterator[tuple[Holder, FaultProxy]]:
        """A node with a good certificate whose answers are broken by script.

        It asks for no ticket; what it answers without a fault is right.
        """
        target = f"{PATH_PEER_ENTRIES}{UID}/{PATH}".lstrip("/")
        with (
            RangeServer({target: Served.of(body)}) as server,
            FaultProxy(server.address) as proxy,
        ):
            proxy.wrap_tls(self.credentials(node_uid).server_context())
            yield make_holder(node_uid, proxy.port), proxy


def make_holder(node_uid: str, port: int) -> Holder:
    return Holder(node_uid=node_uid, address="127.0.0.1", port=port, is_complete=True)


class PeerGrants(Grants):
    """Grants that name holders. Asked again, the operator says to read the source."""

    def __init__(self, sources, url_of, book: PeerBook) -> None:
        super().__init__(sources, url_of)
        self.book = book
        self.renewed = None

    async def refresh(self, uid: str, path: str):
        if self.renewed is not None:
            self.book.learn(uid, *self.renewed)
        return await super().refresh(uid, path)

    def offer(
        self, source_digest: str, ticket: str, *holders: Holder, reads_source: bool = False
    ) -> None:
        self.book.learn(
            UID, source_digest, PeerGrant(ticket=ticket, holders=holders, reads_source=reads_source)
        )
        self.renewed = (source_digest, PeerGrant(ticket=ticket, holders=(), reads_source=True))


class FetchPair:
    """Files at a source, their content known, and a folder to fetch them into."""

    def __init__(self, server, tmp_path, bodies=None):
        self.server = server
        self.bodies = bodies or {PATH: BODY}
        for path, body in self.bodies.items():
            server.objects[path] = Served.of(body, hashlib.md5(body).hexdigest())
        self.sources = {
            path: SourceFile(path, len(body), server.objects[path].etag)
            for path, body in self.bodies.items()
        }
        self.content = {path: content_of(path, body) for path, body in self.bodies.items()}
        self.job = make_job(self.sources, tmp_path / "p", expected=self.content)
        self.folder = tmp_path

    def shelf(self, name: str, body: bytes | None = None) -> FolderShelf:
        """A node's copy; with a body, of the one file and with these bytes."""
        folder = self.folder / name
        for path, right in self.bodies.items():
            location = folder / path
            location.parent.mkdir(parents=True, exist_ok=True)
            location.write_bytes(right if body is None else body)
        return FolderShelf(folder)

    async def fetch(self, peers, *holders, **how):
        """All from wherever it is best, and right; the book and the engine's counters."""
        outcome, book, counters = await self.try_to_fetch(peers, *holders, **how)
        assert outcome.failure is None
        for file in outcome.files:
            assert file.content == self.content[file.path]
            assert file.partial_path.read_bytes() == self.bodies[file.path]
        return book, counters

    async def try_to_fetch(
        self, peers, *holders, reads_source=False, ticket=None, renewed=None, **config
    ):
        book = peers.book()
        grants = PeerGrants(self.sources, lambda path: self.server.url(quote(path)), book)
        digest = self.job.source_digest
        ticket = ticket or peers.ticket(digest)
        grants.offer(digest, ticket, *holders, reads_source=reads_source)
        if renewed is not None:
            grants.renewed = (digest, renewed)
        async with FetchEngine(grants, quick(**config), routes=book) as engine:
            outcome = await engine.fetch(self.job)
            return outcome, book, engine.counters()

    @property
    def source_requests(self):
        return len(self.server.requests)
