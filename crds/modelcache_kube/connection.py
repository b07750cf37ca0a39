"""Opens a connection as a pod does, or by a kubeconfig; keeps the token fresh."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import kubernetes.aio.config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config.incluster_config import SERVICE_TOKEN_FILENAME

from modelcache_kube.client import KubeClient, RequestHook
from modelcache_kube.transport import Transport

_official: Final[Any] = kubernetes.aio.config  # its functions carry no types
# The kubelet replaces a token at 80 % of its life, at the earliest after some minutes.
TOKEN_REREAD_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ConnectConfig:
    """How to reach the API server.

    `kubeconfig` None means: with the service account of the pod that we run in. `timeout_seconds`
    is the deadline of each request (default 15: longer than an API server's own admission calls
    usually take, shorter than a lease).
    """

    kubeconfig: Path | None = None
    context: str | None = None
    timeout_seconds: float = 15.0
    user_agent: str = "modelcache"


class TokenFile:
    """A bearer token that somebody else replaces on disk while we run."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._read_at: float | None = None

    def refresh(self, configuration: Any) -> None:
        """Put the token into the client's configuration; read again after a minute."""
        now = self._clock()
        if self._read_at is not None and now - self._read_at < TOKEN_REREAD_SECONDS:
            return
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except OSError:
            # The old token may still be good; if it is not, the API server will say so.
            return
        if token:
            configuration.api_key["BearerToken"] = f"Bearer {token}"
            self._read_at = now

    def forget(self) -> None:
        """The token was refused: the next request reads the file."""
        self._read_at = None


@asynccontextmanager
async def connect(
    config: ConnectConfig | None = None, *, on_request: RequestHook | None = None
) -> AsyncIterator[KubeClient]:
    """A client of the API server. Sends nothing until it is asked to.

    Raises:
        kubernetes.aio.config.ConfigException: there are no usable credentials.
    """
    config = config or ConnectConfig()
    configuration: Any = Configuration()
    token_file = await _load(config, configuration)
    if token_file is not None:
        token_file.refresh(configuration)
        configuration.refresh_api_key_hook = token_file.refresh
    _spare_the_environment(configuration)
    async with ApiClient(configuration) as api:
        api.user_agent = config.user_agent
        transport = Transport(
            api,
            timeout_seconds=config.timeout_seconds,
            on_request=on_request,
            on_unauthorized=token_file.forget if token_file is not None else None,
        )
        yield KubeClient(transport)


def _spare_the_environment(configuration: Any) -> None:
    """Proxies of the environment are looked up once.

    The client's own way reads ~/.netrc before each request, and fails where it names the server.
    """
    configuration.client_session_kwargs = {"trust_env": False}
    server = urlsplit(str(configuration.host))
    if configuration.proxy is None and not proxy_bypass(server.hostname or ""):
        configuration.proxy = getproxies().get(server.scheme)


async def _load(config: ConnectConfig, configuration: Any) -> TokenFile | None:
    if config.kubeconfig is None:
        _official.load_incluster_config(client_configuration=configuration)
        return TokenFile(Path(SERVICE_TOKEN_FILENAME))
    loader = await _official.load_kube_config(
        config_file=str(config.kubeconfig),
        context=config.context,
        client_configuration=configuration,
        persist_config=False,
    )
    return _find_token_file(loader)


def _find_token_file(loader: Any) -> TokenFile | None:
    """The file behind a kubeconfig's token. The official loader reads it once and never again."""
    user = loader._user  # noqa: SLF001 - it merges files and contexts; there is no public way
    if user is None or "token" in user or "exec" in user or "tokenFile" not in user:
        return None
    return TokenFile(Path(user.path).absolute().parent / str(user["tokenFile"]))
