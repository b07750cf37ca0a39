"""S3 clients that take nothing from the operator's own environment."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from botocore import UNSIGNED
from botocore.config import Config
from botocore.configprovider import (
    BOTOCORE_DEFAUT_SESSION_VARIABLES,
    ConfigValueStore,
    ConstantProvider,
)
from botocore.credentials import CredentialResolver
from botocore.session import Session
from botocore.tokens import TokenProviderChain

from modelcache_operator.decide.allowed_sources import Reach
from modelcache_operator.sources.access import Access, Credentials
from modelcache_operator.sources.addressing import Address
from modelcache_operator.sources.egress import GuardedSession

_C = TypeVar("_C")
# Our queue retries, and it knows which reasons are worth it.
_ONE_ATTEMPT: Final = {"total_max_attempts": 1, "mode": "standard"}


class S3Client(Protocol):
    """The calls we make. All block; answers are as botocore parses them."""

    def list_objects_v2(self, **parameters: Any) -> Mapping[str, Any]:
        """One page of keys."""

    def list_object_versions(self, **parameters: Any) -> Mapping[str, Any]:
        """One page of versions."""

    def get_bucket_versioning(self, **parameters: Any) -> Mapping[str, Any]:
        """Whether the bucket keeps versions."""

    def head_object(self, **parameters: Any) -> Mapping[str, Any]:
        """Headers of one object."""

    def get_object(self, **parameters: Any) -> Mapping[str, Any]:
        """One object, or a part of it."""

    def generate_presigned_url(self, method: str, **parameters: Any) -> str:
        """A URL that carries its own leave."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds: to connect, from one byte to the next, and of one request as a whole."""

    connect: float = 5.0
    read: float = 20.0
    request: float = 60.0


def make_session() -> Session:
    """A botocore session without environment, files, instance metadata or other ambient sources.

    botocore's own logging is cut at warnings: below, it writes down signatures.
    """
    logging.getLogger("botocore").setLevel(logging.WARNING)
    session = Session()
    settings = {
        name: ConstantProvider(variable[2])
        for name, variable in BOTOCORE_DEFAUT_SESSION_VARIABLES.items()
    }
    settings["config_file"] = ConstantProvider(os.devnull)
    settings["credentials_file"] = ConstantProvider(os.devnull)
    session.register_component("config_store", ConfigValueStore(mapping=settings))
    session.register_component("credential_provider", CredentialResolver(providers=[]))
    session.register_component("token_provider", TokenProviderChain(providers=[]))
    return session


def make_client(
    session: Session,
    address: Address,
    access: Access[Credentials],
    reach: Reach,
    timeouts: Timeouts,
) -> S3Client:
    """A client for one store and one identity. Blocking (loads its model); thread-safe after."""
    credentials = access.credentials
    client: Any = session.create_client(
        "s3",
        region_name=address.region,
        endpoint_url=address.endpoint,
        aws_access_key_id=credentials.access_key if credentials else None,
        aws_secret_access_key=credentials.secret_key if credentials else None,
        aws_session_token=credentials.session_token if credentials else None,
        config=_make_config(address, is_anonymous=credentials is None),
    )
    http = GuardedSession(
        reach,
        access.ca_bundle,
        timeout=(timeouts.connect, timeouts.read),
        request_seconds=timeouts.request,
    )

    def send(request: Any, **_: Any) -> Any:
        return http.send(request)

    client.meta.events.register("before-send.s3", send)
    client.meta.events.register_last("before-parameter-build.s3", _never_redirect)
    return cast("S3Client", client)


def _make_config(address: Address, *, is_anonymous: bool) -> Config:
    options: dict[str, Any] = dict(  # noqa: C408 - they are names of parameters
        signature_version=UNSIGNED if is_anonymous else "s3v4",
        s3={"addressing_style": address.style, "us_east_1_regional_endpoint": "regional"},
        retries=_ONE_ATTEMPT,
        # Stores that are older than the checksum headers refuse requests that carry them.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        ignore_configured_endpoint_urls=True,
        defaults_mode="legacy",
        proxies={},
    )
    return Config(**options)


def _never_redirect(context: dict[str, Any], **_: Any) -> None:
    """Botocore would look for the bucket's region by itself, and sign for another one later."""
    context.setdefault("s3_redirect", {})["redirected"] = True


class ClientCache(Generic[_C]):
    """The clients used last. Making one takes tens of milliseconds, and sessions are not shared."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._clients: OrderedDict[Hashable, _C] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], _C]) -> _C:
        """The client of that key; made by one thread at a time."""
        with self._lock:
            client = self._clients.get(key)
            if client is None:
                client = self._clients[key] = make()
            self._clients.move_to_end(key)
            while len(self._clients) > self._size:
                self._clients.popitem(last=False)
            return client
