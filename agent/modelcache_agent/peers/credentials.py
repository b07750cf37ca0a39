"""Our certificate towards other agents, and what we believe of theirs.

The key is made here and stays in memory; for the moment that the ssl module reads it, it passes
through a file that is private and gone at once.
"""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from modelcache_api.peers import Ticket, describe_ticket_fault, split_ticket, unpack_ticket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelcache_api.wire import CertificateResponse


class TicketError(Exception):
    """The ticket does not open what was asked for; one sentence."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """One certificate and everything made of it; replaced as a whole."""

    client: ssl.SSLContext
    server: ssl.SSLContext
    keys: tuple[ec.EllipticCurvePublicKey, ...] = field(repr=False)
    expires_at: float = 0.0


class PeerCredentials:
    """Written by the keeper on the event loop, read by streams and serving threads."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._shown: _Shown | None = None

    @property
    def public_key(self) -> str:
        """PEM, for the operator to certify."""
        public = self._key.public_key()
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")

    @property
    def is_certified(self) -> bool:
        """True once the operator has answered for the first time."""
        return self._shown is not None

    @property
    def expires_at(self) -> float | None:
        """When the certificate ends (Unix seconds), or None before the first."""
        return None if self._shown is None else self._shown.expires_at

    def use(self, answer: CertificateResponse) -> None:
        """Show this certificate from the next handshake on. Raises ValueError if it is unusable."""
        authorities = x509.load_pem_x509_certificates(answer.authorities.encode())
        keys = (authority.public_key() for authority in authorities)
        try:
            self._shown = _Shown(
                client=self._make_context(ssl.PROTOCOL_TLS_CLIENT, answer),
                server=self._make_context(ssl.PROTOCOL_TLS_SERVER, answer),
                keys=tuple(key for key in keys if isinstance(key, ec.EllipticCurvePublicKey)),
                expires_at=x509.load_pem_x509_certificate(
                    answer.certificate.encode()
                ).not_valid_after_utc.timestamp(),
            )
        except ssl.SSLError as error:
            raise ValueError(f"the certificate cannot be used: {error.reason}") from error

    def client_context(self) -> ssl.SSLContext | None:
        """For reading from others, or None before the first certificate."""
        return None if self._shown is None else self._shown.client

    def server_context(self) -> ssl.SSLContext | None:
        """For serving others, or None before the first certificate."""
        return None if self._shown is None else self._shown.server

    def check_ticket(
        self, text: str, certificate: Mapping[str, Any], uid: str, source_digest: str, now: float
    ) -> None:
        """Raise TicketError unless the ticket lets the holder of the certificate read that."""
        try:
            payload, signature = split_ticket(text)
            if not self._is_signed(payload, signature):
                raise TicketError("the ticket is not signed by an authority that is trusted here")
            ticket: Ticket = unpack_ticket(payload)
            fault = describe_ticket_fault(
                ticket,
                peer_name=_name_of(certificate),
                uid=uid,
                source_digest=source_digest,
                now=now,
            )
        except ValueError as error:
            raise TicketError(str(error)) from error
        if fault is not None:
            raise TicketError(fault)

    def _is_signed(self, payload: bytes, signature: bytes) -> bool:
        for key in () if self._shown is None else self._shown.keys:
            try:
                key.verify(signature, payload, ec.ECDSA(hashes.SHA256()))
            except InvalidSignature:
                continue
            return True
        return False

    def _make_context(self, protocol: int, answer: CertificateResponse) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=answer.authorities)
        key = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "peer.pem"
            path.touch(mode=0o600)
            path.write_bytes(key + answer.certificate.encode())
            context.load_cert_chain(path)
        return context


def _name_of(certificate: Mapping[str, Any]) -> str | None:
    """The one DNS name in a verified certificate, as the ssl module tells it."""
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return names[0] if len(names) == 1 else None
