"""Certificates and tickets for agents that read from each other, by the operator's authority."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from modelcache_api.peers import Ticket, join_ticket, make_peer_name, pack_ticket
from modelcache_api.wire import CertificateResponse
from modelcache_operator.ports.authority import Authority
from modelcache_operator.tls import issue_peer_certificate, sign_payload


class NoAuthorityError(Exception):
    """The authority has not been read yet; a moment later it will have been."""


class PeerCredentials:
    """Signs with the authority that is current.

    Certificates live as long as old and new authority are both trusted during a rotation: each
    agent has then renewed its own, and learned of the next authority, before the old one goes.
    """

    def __init__(
        self,
        authority: Callable[[], Authority | None],
        *,
        life: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._authority = authority
        self._life = life
        self._now = now

    def sign(self, ticket: Ticket) -> str | None:
        """The ticket as it travels; None while there is no authority."""
        authority = self._authority()
        if authority is None:
            return None
        payload = pack_ticket(ticket)
        return join_ticket(payload, sign_payload(authority.current, payload))

    def certify(self, node_uid: str, public_key: str) -> CertificateResponse:
        """A certificate for the key, in the name of that Node.

        Raises:
            ValueError: the key cannot be used.
            NoAuthorityError: there is no authority yet.
        """
        authority = self._authority()
        if authority is None:
            raise NoAuthorityError
        certificate = issue_peer_certificate(
            authority.current,
            make_peer_name(node_uid),
            public_key.encode(),
            now=self._now(),
            life=self._life,
        )
        return CertificateResponse(
            certificate=certificate.decode("ascii"),
            authorities=authority.bundle.decode("ascii"),
            valid_seconds=self._life.total_seconds(),
        )
