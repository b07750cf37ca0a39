"""The connections to a hub, its mirror, and where they redirect to, for the hub's own client."""

from __future__ import annotations

from typing import Final

import httpcore2
import httpx2

from modelcache_api.names import Reason
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.connections import JudgedConnections

# A page of 1,000 entries has about 300 KB; a small file that is handed over is bounded by itself.
MAX_ANSWER_BYTES: Final = 17 * 1024 * 1024
_RETRY_SECONDS: Final = 30.0


class HubConnections(JudgedConnections):
    """Takes and gives what the hub's client knows."""

    def send(self, request: httpx2.Request) -> httpx2.Response:
        """One request and its whole answer, both bounded in time and size. Follows nothing.

        Raises:
            SourceError: the answer is too long, or compressed although that was not asked for.
            RefusedAddressError, NO_ANSWER: no complete answer came.
        """
        url = request.url
        # What unpacks to how much is not known beforehand.
        request.headers["Accept-Encoding"] = "identity"
        answer = self.exchange(
            httpcore2.Request(
                request.method,
                httpcore2.URL(
                    scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                ),
                headers=request.headers.raw,
                content=request.read(),
            ),
            MAX_ANSWER_BYTES,
        )
        if not answer.is_whole:
            raise _odd("the answer is longer than that of any hub")
        response = httpx2.Response(
            answer.status, headers=answer.raw_headers, stream=httpx2.ByteStream(answer.body)
        )
        if answer.body and response.headers.get("content-encoding", "identity") != "identity":
            raise _odd("the answer is compressed although that was not asked for")
        return response


def _odd(message: str) -> SourceError:
    return SourceError(
        Reason.SOURCE_ERROR,
        f"{message}: check source.endpoint",
        retry_after_seconds=_RETRY_SECONDS,
    )
