"""As much of an API server as watches need, with a fault of its own for each resource's watch."""

from __future__ import annotations

import asyncio
from collections import Counter
from enum import Enum, auto
from typing import Self

from aiohttp import web

GROUPS = {
    "/apis/modelcache.io/v1alpha1": (
        "modelversions",
        "modelcaches",
        "modelcachequotas",
        "cachenodes",
    ),
    # kopf waits for the resource of namespaces, though it watches none.
    "/api/v1": ("nodes", "pods", "namespaces"),
}
CLUSTER_SCOPED = {"cachenodes", "nodes", "namespaces"}


class Fault(Enum):
    FORBIDDEN = auto()
    CUT_BEFORE_THE_ANSWER = auto()
    CUT_AFTER_THE_HEAD = auto()


class WatchedApi:
    """Lists are empty, watches are silent. Runs on the event loop of the test."""

    def __init__(self) -> None:
        self.faults: dict[str, Fault] = {}
        self.watches: Counter[str] = Counter()
        self.refuses_tokens = False
        self.url = ""
        self._end = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._authenticate])
        app.router.add_get("/api", self._versions)
        app.router.add_get("/apis", self._groups)
        for path in GROUPS:
            app.router.add_get(path, self._resources)
            app.router.add_get(path + "/{plural}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end.set()
        await self._runner.cleanup()

    @web.middleware
    async def _authenticate(self, request, handler):
        return _refuse(401) if self.refuses_tokens else await handler(request)

    async def _versions(self, _):
        return web.json_response({"kind": "APIVersions", "versions": ["v1"]})

    async def _groups(self, _):
        version = {"groupVersion": "modelcache.io/v1alpha1", "version": "v1alpha1"}
        group = {"name": "modelcache.io", "versions": [version], "preferredVersion": version}
        return web.json_response({"kind": "APIGroupList", "groups": [group]})

    async def _resources(self, request):
        resources = [
            {
                "name": plural,
                "singularName": plural[:-1],
                "kind": plural[:-1].capitalize(),
                "namespaced": plural not in CLUSTER_SCOPED,
                "verbs": ["list", "watch"],
            }
            for plural in GROUPS[request.path]
        ]
        return web.json_response({"kind": "APIResourceList", "resources": resources})

    async def _answer(self, request):
        plural = request.match_info["plural"]
        if "watch" not in request.query:
            metadata = {"resourceVersion": "1"}
            return web.json_response({"kind": "List", "metadata": metadata, "items": []})
        self.watches[plural] += 1
        fault = self.faults.get(plural)
        if fault is Fault.FORBIDDEN:
            return _refuse(403)
        if fault is Fault.CUT_BEFORE_THE_ANSWER:
            request.transport.abort()
            return web.Response()
        stream = web.StreamResponse()
        await stream.prepare(request)
        if fault is Fault.CUT_AFTER_THE_HEAD:
            request.transport.abort()
        else:
            await self._end.wait()
        return stream


def _refuse(code):
    status = {"kind": "Status", "code": code, "reason": "Refused", "message": "no"}
    return web.json_response(status, status=code)
