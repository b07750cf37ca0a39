"""A certificate authority of the instance's own, and what it signs.

Everything is elliptic-curve: creating it takes milliseconds.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from modelcache_testbed.errors import TestbedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_VALID_FOR = dt.timedelta(days=3650)
_CLOCK_SKEW = dt.timedelta(hours=1)
_NOT_ENCRYPTED = serialization.NoEncryption()


@dataclass(frozen=True)
class KeyPair:
    """Where a certificate and its private key lie."""

    certificate: Path
    key: Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    scratch = path.with_name(path.name + ".new")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    scratch.replace(path)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, _NOT_ENCRYPTED
    )


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID_FOR)
    )


def _alternative_name(value: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(value))
    except ValueError:
        return x509.DNSName(value)


def write_signing_key(folder: Path, name: str) -> KeyPair:
    """Create a bare key pair, as service-account tokens are signed with."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(folder / f"{name}.pub", folder / f"{name}.key")
    write_private(pair.key, _key_pem(key))
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    pair.certificate.write_bytes(public)
    return pair


class CertificateAuthority:
    """One authority in one folder; makes and signs keys for those it is asked to."""

    def __init__(
        self, folder: Path, name: str, key: ec.EllipticCurvePrivateKey | None = None
    ) -> None:
        """Create the authority and write ``<name>.crt`` and ``<name>.key``.

        With ``key`` the authority is one that was created earlier, and nothing is written.
        """
        self._folder = folder
        self._subject = _name(f"modelcache-testbed-{name}")
        self.files = KeyPair(folder / f"{name}.crt", folder / f"{name}.key")
        self._key = key or ec.generate_private_key(ec.SECP256R1())
        if key is None:
            self._write()

    def _write(self) -> None:
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = (
            _builder(self._subject, self._subject)
            .public_key(self._key.public_key())
            .add_extension(constraints, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        write_private(self.files.key, _key_pem(self._key))
        self.files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    @classmethod
    def load(cls, folder: Path, name: str) -> CertificateAuthority:
        """Take up an authority that was created earlier."""
        file = folder / f"{name}.key"
        key = serialization.load_pem_private_key(file.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TestbedError(f"{file} holds a key of another kind")
        return cls(folder, name, key)

    def issue(
        self,
        file_name: str,
        common_name: str,
        *,
        organizations: Sequence[str] = (),
        serves: Sequence[str] = (),
    ) -> KeyPair:
        """Sign a key for a client, and for a server under the names in ``serves``."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(_name(common_name, organizations), self._subject)
        if serves:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_alternative_name(v) for v in serves])
            builder = builder.add_extension(names, critical=False)
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            builder.public_key(key.public_key())
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(issuer_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = KeyPair(self._folder / f"{file_name}.crt", self._folder / f"{file_name}.key")
        write_private(pair.key, _key_pem(key))
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return pair
