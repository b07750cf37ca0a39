"""A stand-in for Prometheus: the documented answers of its HTTP API to one kind of question."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class PrometheusStandIn:
    """Answers with `values` by query; an unknown query gives no sample. Remembers who asked."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.asked: list[dict[str, Any]] = []
        self.raw: web.Response | None = None
        self.padding = 0
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        self.asked.append({"query": form["query"], "token": request.headers.get("Authorization")})
        if self.raw is not None:
            return self.raw
        value = self.values.get(str(form["query"]))
        result = [] if value is None else [{"metric": {}, "value": [1_700_000_000.1, value]}]
        data = {"resultType": "vector", "result": result}
        text = json.dumps({"status": "success", "data": data}) + " " * self.padding
        return web.Response(text=text, content_type="application/json")


@asynccontextmanager
async def prometheus_stand_in(
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[PrometheusStandIn]:
    """On a free port of loopback, below /tenant."""
    stand_in = PrometheusStandIn()
    app = web.Application()
    app.router.add_post("/tenant/api/v1/query", stand_in.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    scheme = "http" if context is None else "https"
    stand_in.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/tenant"
    try:
        yield stand_in
    finally:
        await runner.cleanup()
