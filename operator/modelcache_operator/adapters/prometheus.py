"""A Prometheus server, or what speaks its HTTP API: one question at a time, bounded.

The address is the administrator's; no part of it comes from a ModelCache, and redirects are not
followed.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from modelcache_api import names
from modelcache_api.names import Reason
from modelcache_operator.decide.promql_gate import Answer, read_answer
from modelcache_operator.decide.rollout import Trouble

_PATH: Final = "/api/v1/query"
_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 3.0
# One sample with its labels; more is no number.
_MAX_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """Implements `ports.measures.Measures`. The files are read for each question: they rotate."""

    url: str
    ca_file: Path | None = None
    token_file: Path | None = None
    seconds: float = _SECONDS

    async def ask(self, query: str) -> Answer:
        """What it says now. Bounded in time and size; never raises for what the server does."""
        try:
            context = await asyncio.to_thread(ssl.create_default_context, cafile=self.ca_file)
            headers = await asyncio.to_thread(self._make_headers)
        except (OSError, ValueError) as error:
            return _unreachable(f"CA or token file cannot be used: {error}")
        timeout = aiohttp.ClientTimeout(total=self.seconds, sock_connect=_CONNECT_SECONDS)
        form = {"query": query, "timeout": f"{self.seconds:g}s"}
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=context),
                    timeout=timeout,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                ) as session,
                session.post(
                    self.url.rstrip("/") + _PATH, data=form, headers=headers, allow_redirects=False
                ) as response,
            ):
                body = await _read(response)
        except TimeoutError:
            return _unreachable(f"no answer within {self.seconds:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _unreachable(str(error) or type(error).__name__)
        if body is None:
            return _unreachable(f"an answer of more than {_MAX_BYTES} bytes")
        return read_answer(response.status, body)

    def _make_headers(self) -> dict[str, str]:
        headers = {"User-Agent": names.MANAGER_OPERATOR, "Accept-Encoding": "identity"}
        if self.token_file is not None:
            headers["Authorization"] = f"Bearer {self.token_file.read_text().strip()}"
        return headers


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """The whole body, or None if it is too large."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(_MAX_BYTES):
        body += chunk
        if len(body) > _MAX_BYTES:
            return None
    return bytes(body)


def _unreachable(why: str) -> Trouble:
    return Trouble(Reason.GATE_UNREACHABLE, f"Prometheus cannot be asked: {why}")
