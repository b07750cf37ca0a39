"""One file as an answer, whole or one range of it."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Final

from aiohttp import web

from modelcache_operator.grants import FileRefusedError

_RANGE: Final = re.compile(r"bytes=(\d{1,15})-(\d{1,15})?")
# The least that an agent's bandwidth may be capped at.
_SLOWEST_BYTES_PER_SECOND: Final = 64 * 1024
_TYPE: Final = "application/octet-stream"


def build_file_answer(body: bytes, asked: str | None) -> web.Response:
    """The range that the header asks for; everything, if it asks for none or for several."""
    found = _RANGE.fullmatch(asked or "")
    if found is None:
        return web.Response(body=body, content_type=_TYPE)
    start = int(found[1])
    end = min(int(found[2]) + 1 if found[2] else len(body), len(body))
    if start >= end:
        return web.Response(
            status=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            headers={"Content-Range": f"bytes */{len(body)}"},
        )
    return web.Response(
        status=HTTPStatus.PARTIAL_CONTENT,
        body=body[start:end],
        content_type=_TYPE,
        headers={"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"},
    )


async def send_whole(request: web.Request, answer: web.Response, seconds: float) -> web.Response:
    """Send it now, within these seconds and what the slowest reader may take beyond.

    A reader that is slower is cut off, and what is left of the answer given up.
    """
    size = len(answer.body) if isinstance(answer.body, bytes) else 0
    try:
        async with asyncio.timeout(seconds + size / _SLOWEST_BYTES_PER_SECOND):
            await answer.prepare(request)
            await answer.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return answer


def refuse_file(refused: FileRefusedError) -> web.Response:
    """Readers know no words of ours: by the status they learn whether to come again."""
    wait = refused.retry_after_seconds
    status = HTTPStatus.FORBIDDEN if wait is None else HTTPStatus.SERVICE_UNAVAILABLE
    headers = {} if wait is None else {"Retry-After": str(int(wait) + 1)}
    text = refused.error.model_dump_json(by_alias=True)
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)
