"""One HTTPS conversation with the operator: its CA, our token, bounded answers.

Whatever goes wrong is a GrantUnavailableError: a reason, a sentence, and when to ask again.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from modelcache_agent.decide.granting import UNKNOWN_SECONDS
from modelcache_agent.fetch import GrantUnavailableError
from modelcache_api.conditions import truncate
from modelcache_api.log_fields import make_trace_header
from modelcache_api.names import Reason
from modelcache_api.wire import GrantedFile, WireError

_TIMEOUT: Final = aiohttp.ClientTimeout(total=45.0, connect=10.0)
# A page of 500 large files with the hashes of their pieces has about 20 MB.
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_AWAY_SECONDS: Final = 10.0
_REFUSED_SECONDS: Final = 60.0
_OK: Final = 200
_CONFLICT: Final = 409
_SERVER_ERROR: Final = 500
_TOO_MANY_REQUESTS: Final = 429


class OperatorHttp:
    """Posts JSON. CA and token are read again for each request, because others replace them."""

    def __init__(self, url: str, *, ca_file: Path | None, token_file: Path | None) -> None:
        self._url = url.rstrip("/")
        self._ca_file = ca_file
        self._token_file = token_file
        self._session: aiohttp.ClientSession | None = None
        self._context: tuple[int, ssl.SSLContext] | None = None

    async def close(self) -> None:
        """Close idle connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def reconnect(self) -> None:
        """Let the next request open a connection: behind a Service another replica may answer it.

        Requests at work go on. Connections are pooled by the TLS context they were made with, so
        those of the old one are used no more, and end when they have been idle for a while.
        """
        self._context = None

    async def post(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """The status (200 or 409) and the JSON object of the answer.

        Raises:
            GrantUnavailableError: no usable answer, or a refusal of the caller.
        """
        try:
            status, data = await self._exchange(path, body)
        except (ssl.SSLError, aiohttp.ClientSSLError) as error:
            raise _away(f"TLS with the operator failed: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            what = str(error) or type(error).__name__
            raise _away(f"the operator does not answer: {what}") from error
        if status in {_OK, _CONFLICT}:
            return status, _parse(data)
        refusal = _refusal(status, data)
        if refusal.reason is Reason.NOT_KNOWN_YET:
            self.reconnect()
        raise refusal

    async def give_addresses(self, files: Sequence[GrantedFile]) -> tuple[GrantedFile, ...]:
        """The files, those that the operator hands over itself with an address like all others.

        Raises:
            GrantUnavailableError: CA or token cannot be read.
        """
        if not any(file.url.startswith("/") for file in files):
            return tuple(files)
        try:
            token, bundle = await asyncio.to_thread(self._read_access)
        except OSError as error:
            raise _away(f"the operator's CA or the token cannot be read: {error}") from error
        own: dict[str, Any] = {"ca_bundle": bundle}
        own["headers"] = {} if token is None else {"Authorization": f"Bearer {token}"}
        return tuple(
            file.model_copy(update={**own, "url": f"{self._url}{file.url}"})
            if file.url.startswith("/")
            else file
            for file in files
        )

    def _read_access(self) -> tuple[str | None, str | None]:
        bundle = None if self._ca_file is None else self._ca_file.read_text(encoding="ascii")
        return self._read_token(), bundle

    async def _exchange(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT)
        headers = {"Content-Type": "application/json", **make_trace_header()}
        token = await asyncio.to_thread(self._read_token)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        context = await asyncio.to_thread(self._load_context)
        async with self._session.post(
            f"{self._url}{path}", data=body, headers=headers, ssl=context, allow_redirects=False
        ) as answer:
            return answer.status, await _read_bounded(answer.content)

    def _read_token(self) -> str | None:
        if self._token_file is None:
            return None
        return self._token_file.read_text(encoding="ascii").strip()

    def _load_context(self) -> ssl.SSLContext:
        """The CA file's authorities; loaded again after it was replaced."""
        changed = 0 if self._ca_file is None else self._ca_file.stat().st_mtime_ns
        known = self._context
        if known is None or known[0] != changed:
            known = self._context = (changed, ssl.create_default_context(cafile=self._ca_file))
        return known[1]


async def _read_bounded(content: aiohttp.StreamReader) -> bytes:
    data = bytearray()
    async for chunk in content.iter_any():
        data += chunk
        if len(data) > _MAX_ANSWER_BYTES:
            raise _away(f"the operator's answer has more than {_MAX_ANSWER_BYTES} bytes")
    return bytes(data)


def _parse(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise _away("the operator's answer is not a JSON object")
    return answer


def _refusal(status: int, data: bytes) -> GrantUnavailableError:
    """What another status means. The body is shown only if it is one of our own errors."""
    try:
        said = WireError.model_validate_json(data)
    except ValueError:
        said = None
    message = f"the operator answered {status}" + (f": {said.message}" if said else "")
    if status >= _SERVER_ERROR or status == _TOO_MANY_REQUESTS:
        return _away(message)
    if said is not None and said.reason == Reason.NOT_KNOWN_YET:
        return GrantUnavailableError(Reason.NOT_KNOWN_YET, truncate(message), UNKNOWN_SECONDS)
    return GrantUnavailableError(Reason.GRANT_REFUSED, truncate(message), _REFUSED_SECONDS)


def _away(message: str) -> GrantUnavailableError:
    return GrantUnavailableError(Reason.OPERATOR_UNREACHABLE, truncate(message), _AWAY_SECONDS)
