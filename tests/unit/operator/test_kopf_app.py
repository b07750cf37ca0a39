"""The door to kopf, without a cluster. With one: tests/wiring."""

from __future__ import annotations

import asyncio
import getpass
import pwd

import pytest

from fakes.watched_api import WatchedApi
from modelcache_operator import kopf_app
from modelcache_operator.adapters import parsing
from modelcache_operator.adapters.parsing import ObservedKind
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.adapters.watch_health import WatchHealth
from modelcache_operator.kopf_app import KopfInformer
from modelcache_operator.ports.login import ApiLogin


@pytest.fixture
def nameless(monkeypatch):
    """As in the image: a uid without a name, and an environment that names nobody."""

    def unknown(uid):
        raise KeyError(uid)

    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME", "POD_ID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()


@pytest.mark.usefixtures("nameless")
async def test_a_user_without_a_name_can_watch():
    async with WatchedApi() as api:

        async def login():
            return ApiLogin(server=api.url)

        informer = KopfInformer(
            login,
            WatchCache(),
            WatchHealth(lambda: 0.0, ()),
            on_relist=lambda: None,
            on_event=lambda _kind: None,
        )
        informer.start()
        try:
            async with asyncio.timeout(10):
                while len(api.watches) < 4:  # noqa: ASYNC110 - the API counts, and tells nobody
                    await asyncio.sleep(0.02)
        finally:
            await informer.stop()


class HomeLoop:
    """An event loop that does at once what it is handed."""

    def call_soon_threadsafe(self, act, *arguments):
        act(*arguments)


def test_what_is_known_at_that_version_is_not_parsed_again(monkeypatch):
    """The answer to each write of ours comes once more by the watch."""
    cache, parsed, relists = WatchCache(), [], []
    monkeypatch.setattr(
        kopf_app,
        "parse_object",
        lambda kind, raw: parsed.append(raw) or parsing.parse_object(kind, raw),
    )
    watches = WatchHealth(lambda: 0.0, ())
    informer = KopfInformer(
        None, cache, watches, on_relist=lambda: relists.append(1), on_event=lambda _kind: None
    )
    informer._home = HomeLoop()
    node = {"metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}}
    cache.observe(parsing.parse_object(ObservedKind.NODES, node))
    informer._pass_on(ObservedKind.NODES, None, node)
    informer._pass_on(ObservedKind.NODES, "MODIFIED", node)
    assert parsed == []
    node["metadata"] |= {"resourceVersion": "8", "labels": {"pool": "a"}}
    informer._pass_on(ObservedKind.NODES, "MODIFIED", node)
    assert len(parsed) == 1
    assert cache.node("n1").labels == {"pool": "a"}
    node["metadata"]["resourceVersion"] = "9"
    informer._pass_on(ObservedKind.NODES, None, node)
    assert relists == [1], "a later list that brings news means that a watch was lost"
