"""What a version's Secret and CA bundle say, read anew for each call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, Never, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from modelcache_api import names
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.source import BundleKind, CABundleRef, SecretRef
from modelcache_operator.decide.world import ModelVersionView, ObjectKey
from modelcache_operator.ports.keyed_data import (
    KeyedData,
    KeyedDataForbiddenError,
    KeyedDataReader,
)
from modelcache_operator.ports.sources import SourceError

_C = TypeVar("_C")
_MAX_VALUE_LENGTH: Final = 8192


@dataclass(frozen=True, slots=True)
class Credentials:
    """Keys of a user's Secret. Never shown."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Access(Generic[_C]):
    """How to authenticate, and whom to trust. No credentials means anonymous.

    `revision` changes whenever Secret or bundle may have.
    """

    credentials: _C | None = field(default=None, repr=False)
    ca_bundle: str | None = None
    revision: tuple[str, ...] = ()


async def read_access(
    reader: KeyedDataReader, version: ModelVersionView, parse: Callable[[KeyedData, str], _C]
) -> Access[_C]:
    """The access that the version's source names. `parse` takes a Secret's data and its name.

    Raises:
        SourceError: SecretNotFound, SecretInvalid or CABundleInvalid.
    """
    secret = version.spec.source.credentials_secret_ref
    credentials: _C | None = None
    revision: tuple[str, ...] = ()
    if secret is not None:
        data = await read_secret(reader, version.key.namespace, secret)
        credentials, revision = parse(data, secret.name), (f"secret:{data.revision}",)
    trust = await read_trust(reader, version)
    return Access(credentials, trust.ca_bundle, (*revision, *trust.revision))


async def read_trust(reader: KeyedDataReader, version: ModelVersionView) -> Access[Never]:
    """The CA bundle that the version's source names, and nothing else.

    Raises:
        SourceError: CABundleInvalid.
    """
    bundle = version.spec.source.ca_bundle_ref
    if bundle is None:
        return Access()
    data = await read_bundle(reader, version.key.namespace, bundle)
    return Access(None, parse_bundle(data, bundle), (f"bundle:{data.revision}",))


def parse_credentials(data: KeyedData, name: str) -> Credentials:
    """The credentials in a Secret's data; white space around them is dropped. Pure.

    Raises:
        SourceError: SecretInvalid, naming the key and never the value.
    """
    token = None
    if names.SECRET_SESSION_TOKEN in data.data:
        token = parse_text(data, names.SECRET_SESSION_TOKEN, name)
    return Credentials(
        parse_text(data, names.SECRET_ACCESS_KEY_ID, name),
        parse_text(data, names.SECRET_SECRET_ACCESS_KEY, name),
        token,
    )


def parse_bundle(data: KeyedData, ref: CABundleRef) -> str:
    """The certificates of the bundle and nothing else of it, as PEM. Pure.

    Raises:
        SourceError: CABundleInvalid.
    """
    where = f"key {ref.key!r} of {ref.kind} {ref.name!r}"
    if ref.key not in data.data:
        raise SourceError(Reason.CA_BUNDLE_INVALID, f"{where} does not exist")
    try:
        certificates = x509.load_pem_x509_certificates(data.data[ref.key])
    except ValueError:
        raise SourceError(
            Reason.CA_BUNDLE_INVALID, f"{where} holds no readable PEM certificates"
        ) from None
    return "".join(item.public_bytes(Encoding.PEM).decode("ascii") for item in certificates)


async def read_secret(reader: KeyedDataReader, namespace: str, ref: SecretRef) -> KeyedData:
    """The Secret's data.

    Raises:
        SourceError: SecretNotFound.
    """
    try:
        data = await reader.secret(ObjectKey(namespace, ref.name))
    except KeyedDataForbiddenError:
        raise SourceError(
            Reason.SECRET_NOT_FOUND,
            f"the operator may not read Secret {ref.name!r}: grant it `get` on that Secret",
        ) from None
    if data is None:
        raise SourceError(
            Reason.SECRET_NOT_FOUND,
            f"there is no Secret {ref.name!r} in namespace {namespace!r}: create it, "
            "or remove source.credentialsSecretRef for anonymous reads",
        )
    return data


async def read_bundle(reader: KeyedDataReader, namespace: str, ref: CABundleRef) -> KeyedData:
    """The data of the object that holds the bundle.

    Raises:
        SourceError: CABundleInvalid.
    """
    key = ObjectKey(namespace, ref.name)
    is_secret = ref.kind is BundleKind.SECRET
    try:
        data = await (reader.secret(key) if is_secret else reader.config_map(key))
    except KeyedDataForbiddenError:
        raise SourceError(
            Reason.CA_BUNDLE_INVALID,
            f"the operator may not read {ref.kind} {ref.name!r}: grant it `get` on it",
        ) from None
    if data is None:
        raise SourceError(
            Reason.CA_BUNDLE_INVALID,
            f"there is no {ref.kind} {ref.name!r} in namespace {namespace!r}",
        )
    return data


def parse_text(data: KeyedData, key: str, name: str) -> str:
    """One value of the Secret of that name; white space around it is dropped. Pure.

    Raises:
        SourceError: SecretInvalid, naming the key and never the value.
    """
    if key not in data.data:
        raise SourceError(Reason.SECRET_INVALID, f"Secret {name!r} has no key {key}: add it")
    try:
        value = data.data[key].decode("ascii").strip()
    except UnicodeDecodeError:
        value = ""
    if not value or not value.isprintable() or len(value) > _MAX_VALUE_LENGTH:
        raise SourceError(
            Reason.SECRET_INVALID,
            f"key {key} of Secret {name!r} is empty or holds characters that no key has",
        )
    return value
