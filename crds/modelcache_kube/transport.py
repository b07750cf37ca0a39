"""Sends one request and reads its answer; knows paths and bytes, not resources."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient

from modelcache_kube.errors import ApiUnavailable, make_error

RequestHook = Callable[[str, str, int], None]
"""Called after each request with (verb, plural of the resource, HTTP code; 0 without an answer)."""

APPLY: Final = "application/apply-patch+yaml"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
JSON: Final = "application/json"
# Connecting is quick or it will not happen: leaves most of the deadline to the answer.
_CONNECT_SECONDS: Final = 5.0
_NETWORK_ERRORS: Final = (aiohttp.ClientError, TimeoutError, OSError)


class Transport:
    """One HTTP conversation with the API server. Retries only for a replaced token."""

    def __init__(
        self,
        api: ApiClient,
        *,
        timeout_seconds: float,
        on_request: RequestHook | None = None,
        on_unauthorized: Callable[[], None] | None = None,
    ) -> None:
        self._api = api
        self._timeout_seconds = timeout_seconds
        self._on_request = on_request
        self._on_unauthorized = on_unauthorized

    async def request(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: str,
        path: str,
        *,
        verb: str,
        plural: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        timeout_seconds: float | None = None,
    ) -> dict[str, Any]:
        """The JSON object that the API server answers.

        Raises:
            KubeError: no answer within the deadline, or a refusal.
        """
        data, _ = await self._ask(
            method, path, verb, plural, query, body, content_type, timeout_seconds
        )
        return _parse_object(data)

    async def read_text(
        self,
        path: str,
        *,
        verb: str,
        plural: str,
        query: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> str:
        """What the API server answers to GET, whatever it is; other bytes than UTF-8 are replaced.

        Raises:
            KubeError: no answer within the deadline, or a refusal.
        """
        data, _ = await self._ask("GET", path, verb, plural, query, None, JSON, timeout_seconds)
        return data.decode(errors="replace")

    async def read_date(self, path: str, *, verb: str, plural: str) -> datetime:
        """When the API server answers to GET, by its own clock, in whole seconds.

        Raises:
            KubeError: no answer within the deadline, a refusal, or an answer without a date.
        """
        _, headers = await self._ask("GET", path, verb, plural, None, None, JSON, None)
        try:
            return parsedate_to_datetime(headers.get("Date", ""))
        except ValueError as error:
            raise ApiUnavailable("the answer has no date: is a proxy in between?") from error

    async def _ask(  # noqa: PLR0913, PLR0917 - the parts of an HTTP request
        self,
        method: str,
        path: str,
        verb: str,
        plural: str,
        query: Mapping[str, str] | None,
        body: object,
        content_type: str,
        timeout_seconds: float | None,
    ) -> tuple[bytes, Mapping[str, str]]:
        total = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        timeout = aiohttp.ClientTimeout(total=total, sock_connect=min(total, _CONNECT_SECONDS))
        code = 0
        try:
            response = await self._send(method, path, query, body, content_type, timeout)
            data: bytes = await response.read()
            code = response.status
        except _NETWORK_ERRORS as error:
            raise _unavailable(error) from error
        finally:
            self._count(verb, plural, code)
        if code >= HTTPStatus.BAD_REQUEST:
            raise make_error(code, data, response.headers.get("Retry-After"))
        return data, response.headers

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        plural: str,
        query: Mapping[str, str],
        total_seconds: float,
        idle_seconds: float,
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The JSON lines of a watch, until the server ends it.

        Raises:
            KubeError: it could not be opened, broke off, or was silent for `idle_seconds`.
        """
        timeout = aiohttp.ClientTimeout(
            total=total_seconds, sock_connect=_CONNECT_SECONDS, sock_read=idle_seconds
        )
        code = 0
        try:
            response = await self._send("GET", path, query, None, JSON, timeout)
            code = response.status
            failed = code >= HTTPStatus.BAD_REQUEST
            data = await response.read() if failed else b""
        except _NETWORK_ERRORS as error:
            raise _unavailable(error) from error
        finally:
            self._count("watch", plural, code)
        if failed:
            raise make_error(code, data, response.headers.get("Retry-After"))
        try:
            yield _read_lines(response.response)
        finally:
            response.response.close()

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: object,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        url = self._api.configuration.host + path
        if query:
            url += "?" + urlencode(query)
        rest: Any = self._api.rest_client  # the official client is not typed here
        for attempt in (0, 1):
            headers = {"Accept": JSON, "Content-Type": content_type, **self._api.default_headers}
            await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            response = await rest.request(
                method, url, headers=headers, body=body, _request_timeout=timeout
            )
            if response.status != HTTPStatus.UNAUTHORIZED or not self._on_unauthorized or attempt:
                break
            response.response.release()
            self._on_unauthorized()
        return response

    def _count(self, verb: str, plural: str, code: int) -> None:
        if self._on_request is not None:
            self._on_request(verb, plural, code)


async def _read_lines(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    try:
        while line := await response.content.readline():
            if line.strip():
                yield _parse_object(line)
    except (*_NETWORK_ERRORS, ValueError) as error:
        # ValueError: a line longer than the client's buffer, which no object can be.
        raise _unavailable(error) from error


def _parse_object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ApiUnavailable("the answer is not JSON: is a proxy in between?") from error
    if not isinstance(value, dict):
        raise ApiUnavailable("the answer is not a JSON object: is a proxy in between?")
    return value


def _unavailable(error: Exception) -> ApiUnavailable:
    text = str(error) or type(error).__name__
    return ApiUnavailable(f"the API server did not answer: {text}")
