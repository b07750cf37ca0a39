"""Everything that reading from and serving other nodes needs, put together and taken down."""

from __future__ import annotations

import threading
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modelcache_agent.config import ConfigError
from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.fetch.clock import SystemClock
from modelcache_agent.fetch.throttle import Throttle
from modelcache_agent.peers.book import PeerBook
from modelcache_agent.peers.credentials import PeerCredentials
from modelcache_agent.peers.keeper import CertificateKeeper
from modelcache_agent.peers.server import PeerDoor, PeerServer
from modelcache_agent.peers.shelf import Shelf
from modelcache_api.v1alpha1.cache_node import PeerStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelcache_agent.adapters.operator_http import OperatorHttp
    from modelcache_agent.background import BackgroundTasks
    from modelcache_agent.config import Config
    from modelcache_agent.fetch import FetchEngine
    from modelcache_agent.ports.clock import Clock
    from modelcache_agent.tiers.disk import DiskStore


@dataclass(slots=True)
class Sent:
    """Bytes sent to other nodes, counted by many threads."""

    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, count: int) -> None:
        """Count some more."""
        with self._lock:
            self._bytes += count

    def total(self) -> int:
        """All so far."""
        return self._bytes


class Peers:
    """What one agent needs of other nodes; made only where that is switched on."""

    def __init__(self, config: Config, clock: Clock, on_change: Callable[[], None]) -> None:
        self._config = config
        self._clock = clock
        self._on_change = on_change
        self._port = 0
        self.credentials = PeerCredentials()
        self.book = PeerBook(self.credentials, clock, on_change)
        self.sent = Sent()

    @property
    def status(self) -> PeerStatus | None:
        """As others learn of this node; None until it could serve them."""
        if not self._port or not self.credentials.is_certified:
            return None
        return PeerStatus(
            address=self._config.peer_address or "", port=self._port, suspects=self.book.suspects
        )

    async def start(
        self,
        stack: AsyncExitStack,
        tasks: BackgroundTasks,
        http: OperatorHttp,
        store: DiskStore,
        engine: FetchEngine,
    ) -> None:
        """Serve, and keep the certificate fresh. Raises ConfigError if nobody can listen there."""
        config, cap = self._config, self._config.peer_bandwidth
        door = PeerDoor(
            credentials=self.credentials,
            shelf=Shelf(store, engine),
            throttle=None if cap is None else Throttle(Bandwidth(cap), SystemClock()),
            slots=threading.BoundedSemaphore(config.peer_serves),
            now=time.time,
            count=self.sent.add,
        )
        address = (config.peer_address or "", config.peer_port)
        try:
            server = PeerServer(address, door)
        except OSError as error:
            raise ConfigError(
                f"--peer-address {address[0]} --peer-port {address[1]}: cannot listen there: "
                f"{error.strerror}: give an address of this pod and a port that is free"
            ) from error
        thread = threading.Thread(
            target=server.serve_forever, args=(0.2,), name="peer-server", daemon=True
        )
        thread.start()
        stack.callback(server.close)
        self._port = server.port
        keeper = CertificateKeeper(http, self.credentials, self._clock, self._on_change)
        tasks.start("peer-certificate", keeper.run())
