"""Leases: a heartbeat that others watch, and the election of one leader.

The official client's elector compares wall clocks, sleeps through its own deadline and never
releases; this one trusts a monotonic clock only, and ends a term on time without the API server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from modelcache_kube.client import KubeClient
from modelcache_kube.errors import KubeError
from modelcache_kube.resources import LEASES
from modelcache_kube.timestamps import format_micro_time, utc_now

_RELEASE_SECONDS: Final = 3.0
_SHORTEST_SLEEP: Final = 0.001


def boot_seconds() -> float:
    """Monotonic seconds that go on while the machine is suspended, where the system has them."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class LeaseHeartbeat:
    """A Lease that says: this process lives. One server-side apply per renewal.

    `owner` is an owner reference, so that the Lease goes with its Node.
    """

    kube: KubeClient
    namespace: str
    name: str
    identity: str
    duration_seconds: int
    field_manager: str
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, Any] | None = None
    wall_clock: Callable[[], datetime] = utc_now

    async def renew(self) -> None:
        """Write the time. Creates the Lease where it is missing. Raises KubeError."""
        metadata: dict[str, Any] = {"name": self.name, "namespace": self.namespace}
        if self.labels:
            metadata["labels"] = dict(self.labels)
        if self.owner is not None:
            metadata["ownerReferences"] = [dict(self.owner)]
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.duration_seconds,
            "renewTime": format_micro_time(self.wall_clock()),
        }
        lease = {"metadata": metadata, "spec": spec}
        await self.kube.apply(LEASES, lease, field_manager=self.field_manager)


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """Seconds; the defaults are those of Kubernetes' own components.

    The gap between `renew_deadline` and `lease_duration` is the time that the old leader has to
    stop in, before a new one can begin.
    """

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A state of the Lease, and when we first saw it on our own clock."""

    version: str
    holder: str
    duration: float
    transitions: int
    since: float


class LeaderElector:
    """One candidate for a Lease.

    Whether another leader is dead is judged by our own monotonic clock since we last saw its
    Lease change, so the candidates' wall clocks may differ. `is_leader()` is true only until
    `renew_deadline` after the *start* of the last successful renewal, so it turns false in time
    even if the API server is away or the event loop was blocked: ask it before each write.
    """

    def __init__(  # noqa: PLR0913 - clocks are parameters on purpose
        self,
        kube: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        times: ElectionTimes | None = None,
        clock: Callable[[], float] = boot_seconds,
        wall_clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        on_error: Callable[[KubeError], None] | None = None,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times or ElectionTimes()
        self._clock = clock
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._on_error = on_error or (lambda _error: None)
        self._seen: _Seen | None = None
        self._leader_until = float("-inf")

    def is_leader(self) -> bool:
        """True while no other candidate can have become leader."""
        return self._clock() < self._leader_until

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait until elected, do the work, and return when the term or the work is over.

        The work is cancelled when the term is lost, and awaited; `run` then returns, and may be
        called again. What the work raises is raised here. In every case that is left the Lease is
        released, so that another candidate need not wait for it to run out; also on cancellation.
        """
        try:
            await self._acquire()
            task = asyncio.ensure_future(work())
            keeper = asyncio.create_task(self._keep(), name=f"lease-{self._name}")
            try:
                await asyncio.wait({task, keeper}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _stop(keeper)
                await _stop(task)
            for ended in (keeper, task):
                if not ended.cancelled():
                    ended.result()
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while not await self._attempt(self._times.renew_deadline):
            await self._sleep(self._times.retry)

    async def _keep(self) -> None:
        """Renew until the term is lost."""
        while True:
            # Never zero: a sleep that is shorter than the clock's step would not end the term.
            await self._sleep(max(_SHORTEST_SLEEP, min(self._times.retry, self._left())))
            if not self.is_leader():
                return
            held = await self._attempt(self._left())
            if not held and self._seen is not None and self._seen.holder != self._identity:
                self._leader_until = float("-inf")
                return

    def _left(self) -> float:
        return self._leader_until - self._clock()

    async def _attempt(self, seconds: float) -> bool:
        """One try to hold the Lease, within the given time. True if it is ours now."""
        started = self._clock()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                if not await self._try_hold(started):
                    return False
        except TimeoutError:
            return False
        except KubeError as error:
            self._on_error(error)
            return False
        self._leader_until = started + self._times.renew_deadline
        return True

    async def _try_hold(self, now: float) -> bool:
        lease = await self._kube.get(LEASES, self._name, self._namespace)
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            spec = self._spec(transitions=0, acquired=True)
            self._note(await self._kube.create(LEASES, {"metadata": metadata, "spec": spec}))
            return True
        seen = self._note(lease)
        mine = seen.holder == self._identity
        if seen.holder and not mine and now < seen.since + seen.duration:
            return False
        spec = self._spec(transitions=seen.transitions + (not mine), acquired=not mine)
        patch = {"metadata": {"resourceVersion": seen.version}, "spec": spec}
        lease = await self._kube.merge_patch(LEASES, self._name, patch, namespace=self._namespace)
        self._note(lease)
        return True

    def _note(self, lease: Mapping[str, Any]) -> _Seen:
        """Remember the state with the time *after* the answer: waiting longer is the safe side."""
        version = lease["metadata"]["resourceVersion"]
        if self._seen is None or self._seen.version != version:
            spec = lease.get("spec") or {}
            self._seen = _Seen(
                version=version,
                holder=spec.get("holderIdentity") or "",
                duration=float(spec.get("leaseDurationSeconds") or self._times.lease_duration),
                transitions=int(spec.get("leaseTransitions") or 0),
                since=self._clock(),
            )
        return self._seen

    def _spec(self, *, transitions: int, acquired: bool) -> dict[str, Any]:
        now = format_micro_time(self._wall_clock())
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.lease_duration)),
            "leaseTransitions": transitions,
            "renewTime": now,
        } | ({"acquireTime": now} if acquired else {})

    async def _release(self) -> None:
        """Give the Lease back if it is ours; whoever fails here lets it run out instead."""
        seen, held = self._seen, self.is_leader()
        self._leader_until = float("-inf")
        if not held or seen is None or seen.holder != self._identity:
            return
        patch = {
            "metadata": {"resourceVersion": seen.version},
            "spec": {"holderIdentity": None, "renewTime": format_micro_time(self._wall_clock())},
        }
        with suppress(KubeError):
            await self._kube.merge_patch(
                LEASES,
                self._name,
                patch,
                namespace=self._namespace,
                timeout_seconds=_RELEASE_SECONDS,
            )


async def _stop(task: asyncio.Future[None]) -> None:
    """Cancel and wait until it has ended, whatever it raises."""
    task.cancel()
    await asyncio.wait({task})
