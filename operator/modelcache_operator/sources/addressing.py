"""Where a bucket's requests go: endpoint, region, and the bucket in the path or the host: pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from modelcache_api.names import Reason
from modelcache_api.v1alpha1.source import Addressing, Source
from modelcache_operator.ports.sources import SourceError

DEFAULT_REGION: Final = "us-east-1"
_AWS_SUFFIXES: Final = (".amazonaws.com", ".amazonaws.com.cn")

Style = Literal["path", "virtual"]


@dataclass(frozen=True, slots=True)
class Address:
    """How a store is reached. `endpoint` is None for AWS S3 of the region."""

    endpoint: str | None
    region: str
    style: Style
    host: str
    port: int
    is_tls: bool
    bucket: str

    @property
    def request_host(self) -> str:
        """The host name of requests: with the bucket in front in virtual style."""
        return f"{self.bucket}.{self.host}" if self.style == "virtual" else self.host

    @property
    def authority(self) -> str:
        """Host and port of the endpoint as allow-lists and messages spell it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def make_address(source: Source, bucket: str) -> Address:
    """The address of a source.

    Raises:
        SourceError: SourceInvalid for an endpoint that is none; WrongAddressing where the bucket
            cannot stand in the host name.
    """
    region = source.region or DEFAULT_REGION
    endpoint = _normalise(source.endpoint, region)
    parts = urlsplit(endpoint)
    host = (parts.hostname or "").rstrip(".")
    is_tls = parts.scheme == "https"
    style = _choose_style(source.addressing, host, bucket)
    address = Address(
        endpoint=None if source.endpoint is None else endpoint,
        region=region,
        style=style,
        host=host,
        port=parts.port or (443 if is_tls else 80),
        is_tls=is_tls,
        bucket=bucket,
    )
    _check_virtual(address)
    return address


def _normalise(endpoint: str | None, region: str) -> str:
    if endpoint is None:
        suffix = _AWS_SUFFIXES[1] if region.startswith("cn-") else _AWS_SUFFIXES[0]
        return f"https://s3.{region}{suffix}"
    trimmed = endpoint.rstrip("/")
    try:
        parts = urlsplit(trimmed)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    plain = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise SourceError(
            Reason.SOURCE_INVALID,
            f"source.endpoint {endpoint[:200]!r} is not scheme, host and port: "
            "write it like https://s3.example.com or http://seaweed:8333",
        )
    return trimmed


def _choose_style(addressing: Addressing, host: str, bucket: str) -> Style:
    if addressing is Addressing.PATH:
        return "path"
    if addressing is Addressing.VIRTUAL:
        return "virtual"
    # A dot in the bucket makes a host name that no wildcard certificate covers.
    is_aws = host.endswith(_AWS_SUFFIXES)
    return "virtual" if is_aws and "." not in bucket else "path"


def _check_virtual(address: Address) -> None:
    if address.style != "virtual":
        return
    if _is_ip(address.host):
        raise SourceError(
            Reason.WRONG_ADDRESSING,
            f"the bucket cannot stand before the IP address {address.host} in a host name: "
            "set source.addressing to Path",
        )
    if address.is_tls and "." in address.bucket:
        raise SourceError(
            Reason.WRONG_ADDRESSING,
            f"no wildcard certificate covers {address.request_host}, the bucket's name has a dot: "
            "set source.addressing to Path",
        )


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
