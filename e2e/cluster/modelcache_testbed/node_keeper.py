"""Keeps played nodes looking alive: their Leases often, their status now and then.

As a thread here, or as a program (``python -m modelcache_testbed.keep_nodes``). Which nodes are
kept is written on the nodes themselves, so several keepers may run at once and none needs to be
told.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from modelcache_testbed.console import say
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.kube_api import KubeApi
from modelcache_testbed.nodes import KEPT, PLAYED_LABEL, refresh_status, renew_lease

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

LEASE_PERIOD_SECONDS = 15.0
STATUS_PERIOD_SECONDS = 300.0  # as rarely as a kubelet whose status does not change
USER_AGENT = "modelcache-testbed-node-keeper"


class NodeKeeper:
    """A thread that keeps all played nodes of one cluster fresh."""

    def __init__(
        self,
        kubeconfig: Path,
        *,
        period_seconds: float = LEASE_PERIOD_SECONDS,
        after_round: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; nothing runs before ``start``."""
        self._api = KubeApi(kubeconfig, user_agent=USER_AGENT)
        self._period = period_seconds
        self._after_round = after_round
        self._ending = threading.Event()
        self._status_written: dict[str, float] = {}
        self._thread = threading.Thread(target=self.run, name="node-keeper", daemon=True)

    def start(self) -> None:
        """Begin keeping nodes."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; returns when the round at hand is over."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def run(self) -> None:
        """Keep nodes until stopped. An API server that is away is tried again next round."""
        while not self._ending.is_set():
            try:
                self.refresh()
                self._after_round()
            except TestbedError as error:
                say(f"this round was cut short: {error}")
            self._ending.wait(self._period)

    def refresh(self) -> None:
        """Do one round over all played nodes."""
        selector = f"{PLAYED_LABEL}={KEPT}"
        listed = self._api.get("/api/v1/nodes", labelSelector=selector)
        for node in listed["items"]:
            if self._ending.is_set():
                return
            self._refresh_one(node["metadata"]["name"])

    def _refresh_one(self, name: str) -> None:
        renew_lease(self._api, name)
        now = time.monotonic()
        written = self._status_written.setdefault(name, now)  # fresh when it was created
        if now - written >= STATUS_PERIOD_SECONDS:
            refresh_status(self._api, name)
            self._status_written[name] = now
