"""How the client meets the environment that it runs in."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from aiohttp import web

from modelcache_kube import ApiUnavailable, ConnectConfig, connect

# By path: without one the server tells its own time.
DATES = {"/then/version": "Sun, 01 Feb 2026 12:00:00 GMT", "/never/version": "?"}


@pytest.fixture
async def server():
    """Answers every request with what it was asked and by whom."""
    asked = []

    async def answer(request):
        asked.append((str(request.url), request.headers.get("Authorization")))
        headers = {"Date": DATES[request.path]} if request.path in DATES else {}
        return web.json_response({"gitVersion": "v1"}, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}", asked
    await runner.cleanup()


@pytest.fixture
def write_kubeconfig(tmp_path):
    def write(address):
        path = tmp_path / "kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        path.write_text(json.dumps(document))
        return ConnectConfig(kubeconfig=path)

    return write


async def test_a_netrc_that_names_the_server_is_none_of_our_business(
    server, write_kubeconfig, tmp_path, monkeypatch
):
    address, asked = server
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with connect(write_kubeconfig(address)) as kube:
        await kube.read_version()
    assert asked == [(f"{address}/version", "Bearer t")]


@pytest.mark.parametrize("spared", [True, False], ids=["but not around it", "through it"])
async def test_a_proxy_of_the_environment_is_used(server, write_kubeconfig, monkeypatch, spared):
    address, asked = server
    for name in ("HTTP_PROXY", "ALL_PROXY", "all_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    wanted = address if spared else "http://api.example:8080"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1" if spared else address)
    monkeypatch.setenv("no_proxy", "127.0.0.1" if spared else "")
    async with connect(write_kubeconfig(wanted)) as kube:
        await kube.read_version()
    assert [url for url, _ in asked] == [f"{wanted}/version"]


async def test_the_time_is_the_servers_own(server, write_kubeconfig):
    address, _ = server
    async with connect(write_kubeconfig(f"{address}/then")) as kube:
        assert await kube.read_time() == datetime(2026, 2, 1, 12, tzinfo=UTC)
    async with connect(write_kubeconfig(f"{address}/never")) as kube:
        with pytest.raises(ApiUnavailable, match="has no date"):
            await kube.read_time()
