"""The door to kopf, without a cluster. With one: tests/wiring."""

from __future__ import annotations

import asyncio
import getpass
import pwd

import pytest

from fakes.watched_api import WatchedApi
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
