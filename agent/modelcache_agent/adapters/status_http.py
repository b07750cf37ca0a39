"""/metrics, /healthz, /readyz and /decisions on one port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from modelcache_api.decisions import PATH_DECISIONS


@asynccontextmanager
async def serve_status(
    port: int,
    *,
    render_metrics: Callable[[], bytes],
    is_alive: Callable[[], bool],
    is_ready: Callable[[], bool],
    render_decisions: Callable[[], str],
) -> AsyncIterator[None]:
    """Serve while the context is open; port 0 serves nothing.

    Raises:
        OSError: the port is taken.
    """
    if port == 0:
        yield
        return
    app = web.Application()

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(
            body=render_metrics(), headers={"Content-Type": "text/plain; version=0.0.4"}
        )

    async def healthz(_request: web.Request) -> web.Response:
        return _answer(good=is_alive(), bad="the loop does not turn")

    async def readyz(_request: web.Request) -> web.Response:
        return _answer(good=is_ready(), bad="the store is not open yet")

    async def decisions(_request: web.Request) -> web.Response:
        return web.Response(text=render_decisions(), content_type="application/json")

    app.router.add_get("/metrics", metrics)
    app.router.add_get(PATH_DECISIONS, decisions)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host=None, port=port).start()
        yield
    finally:
        await runner.cleanup()


def _answer(*, good: bool, bad: str) -> web.Response:
    return web.Response(text="ok\n") if good else web.Response(status=503, text=f"{bad}\n")
