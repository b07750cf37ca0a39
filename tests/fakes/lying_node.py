"""A node with a valid certificate and wrong bytes: what a taken-over or broken agent may be."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from modelcache_agent.adapters.operator_http import OperatorHttp
from modelcache_agent.peers.credentials import PeerCredentials
from modelcache_agent.peers.server import PeerDoor, PeerServer
from modelcache_agent.peers.shelf import Offer
from modelcache_api.names import PATH_CERTIFICATES
from modelcache_api.wire import CertificateRequest, CertificateResponse


class LyingShelf:
    """Has these files, as zeros."""

    def __init__(self, blank: Path, sizes: Mapping[str, int]) -> None:
        self._blank = blank
        self._sizes = sizes
        self.asked = 0

    def verified_bytes(self, uid: str, source_digest: str) -> int | None:
        return 1

    def find(self, uid: str, source_digest: str, path: str, start: int, end: int) -> Offer:
        self.asked += 1
        return Offer(self._blank, start, end, self._sizes[path])


@contextmanager
def lying_node(
    folder: Path, url: str, ca_file: Path, token_file: Path, sizes: Mapping[str, int]
) -> Iterator[tuple[int, LyingShelf]]:
    """Its port and shelf; the certificate is the operator's, for the token's node."""
    blank = folder / "blank"
    with blank.open("wb") as file:
        file.truncate(max(sizes.values()))
    shelf = LyingShelf(blank, sizes)
    credentials = asyncio.run(_certify(url, ca_file, token_file))
    door = PeerDoor(
        credentials=credentials,
        shelf=shelf,
        throttle=None,
        slots=threading.BoundedSemaphore(8),
        now=time.time,
        count=lambda _count: None,
    )
    server = PeerServer(("127.0.0.1", 0), door)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.port, shelf
    finally:
        server.close()
        thread.join()


async def _certify(url: str, ca_file: Path, token_file: Path) -> PeerCredentials:
    credentials = PeerCredentials()
    http = OperatorHttp(url, ca_file=ca_file, token_file=token_file)
    try:
        request = CertificateRequest(public_key=credentials.public_key)
        _, document = await http.post(
            PATH_CERTIFICATES, request.model_dump_json(by_alias=True).encode()
        )
    finally:
        await http.close()
    credentials.use(CertificateResponse.model_validate(document))
    return credentials
