"""Keeps the grants server's certificate valid for as long as it runs."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from modelcache_kube.errors import KubeError
from modelcache_operator.decide.authority_rotation import RotationState, Step, choose_step
from modelcache_operator.ports.authority import (
    Authority,
    AuthorityDamagedError,
    AuthorityStore,
    KeyPair,
)
from modelcache_operator.tls import (
    age_of,
    end_of,
    is_due_for_renewal,
    issue_leaf,
    load_pair,
    make_authority,
    make_server_context,
    renewal_of,
    use_leaf,
)

_CHECK_SECONDS: Final = 600.0
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """When an authority is followed by a new one, and how long both are trusted each time.

    The overlap must be longer than three checks: a replica that has just looked goes on for one.
    """

    max_age: timedelta = timedelta(days=365)
    overlap: timedelta = timedelta(hours=1)

    @classmethod
    def of(cls, max_age_seconds: float, overlap_seconds: float) -> RotationPlan:
        """From options in seconds."""
        return cls(timedelta(seconds=max_age_seconds), timedelta(seconds=overlap_seconds))


class ServingCertificate:
    """A leaf of the operator's own authority, renewed without a restart.

    The stored authority is read again at each check, and rotated when it is old or somebody asks.
    Deleting its Secret makes all replicas change to a new one within minutes, with a gap.
    """

    def __init__(
        self,
        store: AuthorityStore,
        hosts: Sequence[str],
        *,
        now: Callable[[], datetime],
        plan: RotationPlan | None = None,
    ) -> None:
        self._store = store
        self._hosts = tuple(hosts)
        self._now = now
        self._plan = plan or RotationPlan()
        self._signer: KeyPair | None = None
        self._leaf: KeyPair | None = None
        self._context: ssl.SSLContext | None = None
        self._published_since: datetime | None = None
        self.authority: Authority | None = None
        """As last read; it signs for agents too."""

    async def ensure(self) -> ssl.SSLContext:
        """Make or take the authority, publish it, and have a valid leaf. Always the same context.

        Raises:
            AuthorityDamagedError: the stored authority cannot be used.
            KubeError: the API server could not be asked.
        """
        authority = await self._read_or_make()
        self._published_since = since = await self._store.publish(authority.bundle, self._now())
        self.authority = authority = await self._rotate(authority, self._now() - since)
        if self._context is None or not self._is_fresh(authority.current):
            self._leaf = issue_leaf(authority.current, self._hosts, self._now())
            self._signer = authority.current
            self._context = self._show(self._leaf)
        return self._context

    def list_expiries(self) -> dict[str, datetime]:
        """When the `serving` certificate and the `authority` that signs end, once they are there.

        Both are renewed long before.
        """
        found = {"serving": self._leaf, "authority": self._signer}
        return {what: end_of(pair.certificate) for what, pair in found.items() if pair is not None}

    def rotation_due_at(self) -> datetime | None:
        """When the next authority should sign; None before the first check.

        By age, or after the overlap once it was announced. It is past if rotation fails.
        """
        if self.authority is None or self._published_since is None:
            return None
        if self.authority.following is not None:
            return self._published_since + self._plan.overlap
        current, now = self.authority.current.certificate, self._now()
        return min(now - age_of(current, now) + self._plan.max_age, renewal_of(current))

    async def keep_fresh(self) -> None:
        """Check every ten minutes until cancelled; failures are logged and tried again."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                await self.ensure()
            except (KubeError, AuthorityDamagedError) as error:
                logger.warning("the serving certificate could not be checked: %s", error)

    async def _rotate(self, authority: Authority, published_for: timedelta) -> Authority:
        """At most one step. If another replica took it, the next check sees what it did."""
        state = RotationState(
            has_following=authority.following is not None,
            has_previous=authority.previous is not None,
            published_for=published_for,
            is_wanted=authority.is_rotation_asked or self._is_old(authority.current.certificate),
        )
        step = choose_step(state, self._plan.overlap)
        if step is Step.STAY:
            return authority
        stepped = _take(step, authority, self._now())
        if not await self._store.replace(stepped):
            return authority
        logger.info("rotation of the certificate authority: %s", step)
        self._published_since = await self._store.publish(stepped.bundle, self._now())
        return stepped

    def _is_old(self, certificate: bytes) -> bool:
        now = self._now()
        return age_of(certificate, now) >= self._plan.max_age or is_due_for_renewal(
            certificate, now
        )

    def _show(self, leaf: KeyPair) -> ssl.SSLContext:
        if self._context is None:
            return make_server_context(leaf)
        use_leaf(self._context, leaf)
        logger.info("the serving certificate was renewed")
        return self._context

    def _is_fresh(self, signer: KeyPair) -> bool:
        if self._leaf is None or signer != self._signer:
            return False
        return not is_due_for_renewal(self._leaf.certificate, self._now())

    async def _read_or_make(self) -> Authority:
        authority = await self._store.read()
        if authority is None:
            await self._store.create(make_authority(self._now()))
            authority = await self._store.read()
        if authority is None:
            raise AuthorityDamagedError("the certificate authority was deleted while it was read")
        try:
            load_pair(authority.current)
            if authority.following is not None:
                load_pair(authority.following)
        except ValueError as error:
            raise AuthorityDamagedError(
                f"the operator's certificate authority is damaged: {error}; delete its Secret"
            ) from error
        return authority


def _take(step: Step, authority: Authority, now: datetime) -> Authority:
    if step is Step.ANNOUNCE:
        return replace(authority, following=make_authority(now), is_rotation_asked=False)
    if step is Step.SWITCH and authority.following is not None:
        return replace(
            authority,
            current=authority.following,
            following=None,
            previous=authority.current.certificate,
        )
    return replace(authority, previous=None)
