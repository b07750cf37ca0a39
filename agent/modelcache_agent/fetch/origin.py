"""Which server a URL leads to, and where a redirect may go. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError
from modelcache_api.names import Reason

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port, and which authorities are trusted there."""

    scheme: str
    host: str
    port: int
    ca_bundle: str | None


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
    """The origin of a split URL."""
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    return Origin(parts.scheme, parts.hostname or "", port, ca_bundle)


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
