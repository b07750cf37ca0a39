"""Keeps the grants server's certificate valid for as long as it runs."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from modelcache_kube.errors import KubeError
from modelcache_operator.ports.authority import AuthorityStore, KeyPair
from modelcache_operator.tls import (
    is_due_for_renewal,
    issue_leaf,
    load_pair,
    make_authority,
    make_server_context,
    use_leaf,
)

_CHECK_SECONDS: Final = 600.0
logger = logging.getLogger(__name__)


class AuthorityDamagedError(Exception):
    """The stored authority cannot be used: delete its Secret, and a new one is made."""


class ServingCertificate:
    """A leaf of the operator's own authority, renewed without a restart.

    The stored authority is read again at each check, so deleting its Secret makes all replicas
    change to a new one within minutes.
    """

    def __init__(
        self, store: AuthorityStore, hosts: Sequence[str], *, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._hosts = tuple(hosts)
        self._now = now
        self._authority: KeyPair | None = None
        self._leaf: KeyPair | None = None
        self._context: ssl.SSLContext | None = None

    async def ensure(self) -> ssl.SSLContext:
        """Make or take the authority, publish it, and have a valid leaf. Always the same context.

        Raises:
            AuthorityDamagedError: the stored authority cannot be used.
            KubeError: the API server could not be asked.
        """
        authority = await self._read_or_make()
        await self._store.publish(authority.certificate)
        if self._context is None or not self._is_fresh(authority):
            self._leaf = issue_leaf(authority, self._hosts, self._now())
            self._authority = authority
            self._context = self._show(self._leaf)
        return self._context

    async def keep_fresh(self) -> None:
        """Check every ten minutes until cancelled; failures are logged and tried again."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                await self.ensure()
            except (KubeError, AuthorityDamagedError) as error:
                logger.warning("the serving certificate could not be checked: %s", error)

    def _show(self, leaf: KeyPair) -> ssl.SSLContext:
        if self._context is None:
            return make_server_context(leaf)
        use_leaf(self._context, leaf)
        logger.info("the serving certificate was renewed")
        return self._context

    def _is_fresh(self, authority: KeyPair) -> bool:
        if self._leaf is None or authority != self._authority:
            return False
        return not is_due_for_renewal(self._leaf.certificate, self._now())

    async def _read_or_make(self) -> KeyPair:
        authority = await self._store.read()
        if authority is None:
            made = make_authority(self._now())
            if await self._store.create(made):
                return made
            authority = await self._store.read()
        if authority is None:
            raise AuthorityDamagedError("the certificate authority was deleted while it was read")
        try:
            load_pair(authority)
        except ValueError as error:
            raise AuthorityDamagedError(
                f"the operator's certificate authority is damaged: {error}; delete its Secret"
            ) from error
        return authority
