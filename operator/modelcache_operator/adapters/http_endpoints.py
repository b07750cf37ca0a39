"""One port for people and machines that watch the operator: /healthz, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web

_LAST_ANSWERS_SECONDS: Final = 2.0


class HttpEndpoints:
    """Answers in the event loop: a blocked loop does not answer, and that is an answer too."""

    def __init__(
        self,
        *,
        health: Callable[[], str | None],
        readiness: Callable[[], str | None],
        metrics: Callable[[], bytes],
    ) -> None:
        self._health = health
        self._readiness = readiness
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> int:
        """Listen on all addresses; the port is returned (0 asks for a free one)."""
        app = web.Application()
        app.router.add_get("/healthz", _answer(self._health))
        app.router.add_get("/readyz", _answer(self._readiness))
        app.router.add_get("/metrics", self._serve_metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_LAST_ANSWERS_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, None, port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the port; safe to repeat."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": "text/plain"})


def _answer(
    complaint: Callable[[], str | None],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        wrong = complaint()
        if wrong is None:
            return web.Response(text="ok\n")
        return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=f"{wrong}\n")

    return answer
