"""Nodes that serve each other over mutual TLS on loopback, with an authority of the test's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fakes.fetch_world import Grants
from modelcache_agent.adapters.system_clock import SystemClock
from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.fetch.clock import SystemClock as FetchClock
from modelcache_agent.fetch.throttle import Throttle
from modelcache_agent.peers.book import PeerBook
from modelcache_agent.peers.credentials import PeerCredentials
from modelcache_agent.peers.server import PeerDoor, PeerServer
from modelcache_agent.peers.shelf import Offer
from modelcache_api.peers import Ticket
from modelcache_api.wire import Holder, PeerGrant
from modelcache_operator.peer_credentials import PeerCredentials as Signer
from modelcache_operator.ports.authority import Authority
from modelcache_operator.tls import make_authority

UID = "uid-1"
US = "node-us"


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

    def signer(self, *, life: timedelta = timedelta(hours=1)) -> Signer:
        return Signer(lambda: self.authority, life=life, now=lambda: datetime.now(UTC))

    def credentials(self, node_uid: str) -> PeerCredentials:
        made = PeerCredentials()
        made.use(self.signer().certify(node_uid, made.public_key))
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
    ) -> Iterator[Holder]:
        door = PeerDoor(
            credentials=credentials or self.credentials(node_uid),
            shelf=shelf,
            throttle=None if rate is None else Throttle(Bandwidth(rate), FetchClock()),
            slots=threading.BoundedSemaphore(slots),
            now=time.time,
            count=lambda _count: None,
        )
        server = PeerServer(("127.0.0.1", 0), door)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield Holder(node_uid=node_uid, address="127.0.0.1", port=server.port, is_complete=True)
        finally:
            server.close()
            thread.join()


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
