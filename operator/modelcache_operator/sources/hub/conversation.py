"""Everything that the hub's library sends passes here, under the rules of the call in force.

The library has one HTTP client for the whole process and keeps what it hears in it. Ours sends
nothing by itself: it hands each request to the conversation of the thread that makes the call.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import httpx2
from huggingface_hub import constants, set_client_factory

from modelcache_api.names import Reason
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.connections import NO_ANSWER, ElsewhereError
from modelcache_operator.sources.hub.answer import HubAnswer, HubAnswerError
from modelcache_operator.sources.hub.connections import HubConnections
from modelcache_operator.sources.hub.endpoint import HubEndpoint
from modelcache_operator.sources.origin import Origin, origin_of

_FIRST_ERROR: Final = 400
_REDIRECTS: Final = 5
# What the library would remember for other calls, or write into the log as it stands.
_UNHEARD: Final = (b"set-cookie", b"x-hf-warning")
_LINK: Final = re.compile(r"<(https?://[^/<>]+)(/[^<>]*)>")


@dataclass(frozen=True, slots=True)
class Conversation:
    """One call of one version. `checkpoint` raises when it is no longer wanted."""

    endpoint: HubEndpoint
    connections: HubConnections
    checkpoint: Callable[[], None]

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """Send it. The token stays with the endpoint, wherever a redirect or a page leads.

        Raises:
            SourceError: it must not be sent.
            HubAnswerError: the answer is an error. The library would try some of them again by
                itself, and wait as long as it is told to; our queue does that.
        """
        self.checkpoint()
        origin = origin_of(str(request.url))
        own = self.endpoint.origin
        if origin is None or (own.scheme, origin.scheme) == ("https", "http"):
            raise SourceError(
                Reason.SOURCE_NOT_ALLOWED,
                f"{own.authority} redirects from https to http, or to another scheme, which is "
                "refused",
            )
        if origin != own:
            request.headers.pop("Authorization", None)
        response = self._send(request, origin)
        if response.status_code >= _FIRST_ERROR:
            headers = {name.lower(): value for name, value in response.headers.items()}
            raise HubAnswerError(HubAnswer.of(response.status_code, headers))
        response.headers = httpx2.Headers(
            [item for item in response.headers.raw if item[0].lower() not in _UNHEARD]
        )
        if "link" in response.headers:
            response.headers["link"] = self._keep_here(response.headers["link"])
        return response

    def _send(self, request: httpx2.Request, origin: Origin) -> httpx2.Response:
        if origin == self.endpoint.origin:
            return self.connections.send(request)
        try:
            return self.connections.send(request)
        except NO_ANSWER as error:
            raise ElsewhereError(origin.authority) from error

    def _keep_here(self, link: str) -> str:
        """Mirrors pass on the public hub's address of the next page; it is theirs to answer."""

        def move(found: re.Match[str]) -> str:
            origin = origin_of(found[1])
            is_hub = origin is not None and origin.host in constants.HF_URL_HOSTS
            return f"<{self.endpoint.url}{found[2]}>" if is_hub else found[0]

        return _LINK.sub(move, link)


_IN_FORCE: Final[ContextVar[Conversation | None]] = ContextVar("hub_conversation", default=None)


class _Switchboard(httpx2.BaseTransport):
    """Closing it closes nothing: the library does so whenever a connection fails."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        conversation = _IN_FORCE.get()
        if conversation is None:
            raise RuntimeError("the hub's library wants to send something that nobody asked for")
        return conversation.answer(request)


def take_over_library() -> None:
    """Make the library send through conversations alone, and nothing about us. May be repeated.

    Its telemetry would ask the hub and write the answer to the disk, its log below warnings names
    addresses that are secrets.
    """
    constants.HF_HUB_DISABLE_TELEMETRY = True
    for name in ("httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)
    set_client_factory(
        lambda: httpx2.Client(
            transport=_Switchboard(),
            follow_redirects=True,
            max_redirects=_REDIRECTS,
            trust_env=False,
        )
    )


@contextlib.contextmanager
def speaking(conversation: Conversation) -> Iterator[None]:
    """What the library sends in this block and thread belongs to the conversation."""
    token = _IN_FORCE.set(conversation)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)
