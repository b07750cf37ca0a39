"""Which server a URL leads to, and where a redirect may go. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError
from modelcache_api.egress import is_loopback_host
from modelcache_api.names import Reason

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """A server, and what it may be: whose authority is trusted, and whether it is this machine.

    Connections are kept by all of it, so none is used where it could not be opened.
    """

    scheme: str
    host: str
    port: int
    ca_bundle: str | None
    may_reach_loopback: bool = False
    server_name: str | None = None
    """Of another node: the name in its certificate, where the address is not."""


def split_url(url: str) -> SplitResult:
    """The parts of an http or https URL. Raises RefusalError for anything else."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        message = "the address of the file is not an http or https URL"
        raise RefusalError(Refusal(Reason.SOURCE_ERROR, message, Cure.NONE))
    return parts


def origin_of(parts: SplitResult, ca_bundle: str | None) -> Origin:
    """The origin of a split URL that came from anywhere, as from a redirect."""
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    return Origin(parts.scheme, parts.hostname or "", port, ca_bundle)


def granted_origin(url: str, ca_bundle: str | None) -> Origin:
    """The origin of a granted URL, whose very spelling may name this machine.

    The operator signs such a URL only where the administrator allows it. A name that DNS or a
    redirect leads here was allowed by nobody. Raises RefusalError.
    """
    origin = origin_of(split_url(url), ca_bundle)
    return replace(origin, may_reach_loopback=is_loopback_host(origin.host))


def following_origin(granted: Origin, parts: SplitResult) -> Origin:
    """The origin that a redirect leads to: the granted one, with its rights, or another."""
    origin = origin_of(parts, granted.ca_bundle)
    return granted if replace(granted, may_reach_loopback=False) == origin else origin


def next_url(url: str, location: str | None) -> str:
    """Where a redirect leads. Raises RefusalError if it must not be followed."""
    if location is None:
        message = "a redirect without a Location"
        raise RefusalError(Refusal(Reason.SOURCE_ERROR, message, Cure.NONE))
    try:
        following = urljoin(url, location)
    except ValueError:
        following = ""
    if split_url(url).scheme == "https" and split_url(following).scheme == "http":
        message = "a redirect from https to http was refused"
        raise RefusalError(Refusal(Reason.SOURCE_NOT_ALLOWED, message, Cure.NONE))
    return following
