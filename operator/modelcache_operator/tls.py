"""Certificates by an authority of the operator's own: for the grants server, and for agents."""

from __future__ import annotations

import ipaddress
import secrets
import ssl
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from modelcache_operator.ports.authority import KeyPair

AUTHORITY_LIFE: Final = timedelta(days=3650)
LEAF_LIFE: Final = timedelta(days=7)
# Clocks of nodes may be behind ours.
_BACKDATED: Final = timedelta(hours=1)


def make_authority(now: datetime) -> KeyPair:
    """A new certificate authority, for our own servers only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("modelcache-operator-ca")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _start(name, name, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue_leaf(authority: KeyPair, hosts: Sequence[str], now: datetime) -> KeyPair:
    """A server certificate for the DNS names and IP addresses.

    Raises:
        ValueError: the authority is damaged, or its key is not that of its certificate.
    """
    issuer, issuer_key = load_pair(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _start(_name(hosts[0][:64]), issuer.subject, key.public_key(), now, LEAF_LIFE)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue_peer_certificate(
    authority: KeyPair, name: str, public_key: bytes, *, now: datetime, life: timedelta
) -> bytes:
    """A certificate for an agent, as server and client alike, for a key that only the agent has.

    Raises:
        ValueError: the key is no P-256 key in PEM, or the authority is damaged.
    """
    key = load_pem_public_key(public_key)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("the public key is not a P-256 key")  # noqa: TRY004 - of the caller's
    issuer, issuer_key = load_pair(authority)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _start(_name("modelcache-agent"), issuer.subject, key, now, life)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)


def sign_payload(authority: KeyPair, payload: bytes) -> bytes:
    """The authority's signature. Raises ValueError if it is damaged."""
    _, key = load_pair(authority)
    return key.sign(payload, ec.ECDSA(hashes.SHA256()))


def load_pair(pair: KeyPair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The parsed pair.

    Raises:
        ValueError: it is damaged, or the key is not that of the certificate.
    """
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    key = load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the private key is not an elliptic-curve key")  # noqa: TRY004 - damage
    if key.public_key() != certificate.public_key():
        raise ValueError("the private key is not that of the certificate")
    return certificate, key


def is_due_for_renewal(certificate: bytes, now: datetime) -> bool:
    """True in the last third of the certificate's life. Raises ValueError if it is none."""
    return now >= renewal_of(certificate)


def renewal_of(certificate: bytes) -> datetime:
    """When the last third of the certificate's life begins. Raises ValueError if it is none."""
    parsed = x509.load_pem_x509_certificate(certificate)
    life = parsed.not_valid_after_utc - parsed.not_valid_before_utc
    return parsed.not_valid_after_utc - life / 3


def end_of(certificate: bytes) -> datetime:
    """When the certificate ends. Raises ValueError if it is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def age_of(certificate: bytes, now: datetime) -> timedelta:
    """Time since the certificate began to be valid. Raises ValueError if it is none."""
    return now - x509.load_pem_x509_certificate(certificate).not_valid_before_utc


def make_server_context(leaf: KeyPair) -> ssl.SSLContext:
    """TLS 1.2 or newer, with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    use_leaf(context, leaf)
    return context


def use_leaf(context: ssl.SSLContext, leaf: KeyPair) -> None:
    """Show that certificate from the next handshake on; running connections stay."""
    # The ssl module reads keys from files only; this one is private and gone at once.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "leaf.pem"
        path.touch(mode=0o600)
        path.write_bytes(leaf.key + leaf.certificate)
        context.load_cert_chain(path)


def _start(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(secrets.randbits(128) | 1)
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
