"""Questions at a door: their routes, places, bounded bodies and answers as JSON."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from modelcache_operator.grant_authentication import DeniedError

_M = TypeVar("_M", bound=BaseModel)
JSON: Final = "application/json"
RETRY_SECONDS: Final = 5.0
_CHUNK: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Route:
    """One question. `path` is how it is counted; `rest` follows it in the address."""

    method: str
    path: str
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    rest: str = ""


def require_synced(*, is_synced: bool) -> None:
    """Raises DeniedError while the operator's watches have not brought everything yet."""
    if not is_synced:
        raise DeniedError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the operator has not seen the cluster yet",
            retry_after_seconds=RETRY_SECONDS,
        )


def require_pace(wait_seconds: float, who: str) -> None:
    """Raises DeniedError, in the words of `who`, if somebody asks sooner than they may."""
    if wait_seconds:
        raise DeniedError(
            HTTPStatus.TOO_MANY_REQUESTS, who, retry_after_seconds=max(1.0, wait_seconds)
        )


@asynccontextmanager
async def take_place(working: Counter[str], whose: str, most: int) -> AsyncIterator[None]:
    """One of somebody's places, for as long as the block runs.

    Raises:
        DeniedError: all of them are taken.
    """
    if working[whose] >= most:
        raise DeniedError(
            HTTPStatus.TOO_MANY_REQUESTS,
            "earlier questions of this node or namespace are still in work",
            retry_after_seconds=RETRY_SECONDS,
        )
    working[whose] += 1
    try:
        yield
    finally:
        working[whose] -= 1
        working += Counter()  # drops the zeros


async def read_body(request: web.Request, limit: int) -> bytes:
    """The body after decompression.

    Raises:
        DeniedError: it is larger than the limit, or not what was announced.
    """
    if request.content_length is not None and request.content_length > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> DeniedError:
    return DeniedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have {limit} bytes at most"
    )


def parse_body(model: type[_M], body: bytes) -> _M:
    """The body as a value.

    Raises:
        DeniedError: it is none; the first field that is wrong is named, and never its content.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:100]
        raise DeniedError(
            HTTPStatus.BAD_REQUEST, f"the body is no {model.__name__}: {place}: {first['type']}"
        ) from None


async def respond(status: HTTPStatus, answer: BaseModel) -> web.Response:
    """The answer as JSON, written in another thread: pages may have megabytes."""
    text = await asyncio.to_thread(answer.model_dump_json, by_alias=True, exclude_none=True)
    return web.Response(status=status, text=text, content_type=JSON)
