"""What the watch on HTTPRoutes tells while it fails: any route may have changed unseen."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from modelcache_kube import ApiUnavailable, Forbidden, KubeClient
from modelcache_operator.adapters.routes import watch_routes

ROUTE = {"metadata": {"namespace": "search", "name": "embed", "uid": "r1", "resourceVersion": "2"}}


class ScriptEndedError(Exception):
    """Nobody asks for more."""


class ScriptedTransport:
    """One route is there; each watch is the next error."""

    def __init__(self, *watches) -> None:
        self.watches = list(watches)

    async def request(self, *_: object, **__: object):
        return {"metadata": {"resourceVersion": "1"}, "items": [ROUTE]}

    @asynccontextmanager
    async def stream(self, *_: object, **__: object):
        if not self.watches:
            raise ScriptEndedError
        raise self.watches.pop(0)
        yield


@pytest.mark.parametrize(
    "error",
    [
        ApiUnavailable("500: conversion webhook failed", code=500),
        Forbidden("403: no right to watch", code=403),
    ],
    ids=["the API server fails", "a right was taken away"],
)
async def test_each_failure_of_the_watch_tells_of_all_routes(error):
    told, changed = [], []
    transport = ScriptedTransport(error)
    with pytest.raises(ScriptEndedError):
        await watch_routes(
            KubeClient(transport),
            on_change=changed.append,
            on_any=lambda: told.append(len(transport.watches)),
        )
    assert told == [1, 0, 0], "after the first list, after the failure, after the next list"
    assert changed == []
