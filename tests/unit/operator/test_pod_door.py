"""Bounds of the pods' door, and the small files it hands over. Real tokens: tests/contract/edge."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import pytest

from builders import make_condition, make_version
from fakes.seen_world import SeenWorld
from fakes.tls_world import PrivateAuthority
from modelcache_api.wire import Grant, GrantedFile, GrantResponse
from modelcache_operator.decide.pod_access import PodCaller
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.grants_server import GrantsServer
from modelcache_operator.pod_door import PodDoor, PodDoorSettings

FILE = GrantedFile(path="tokenizer.json", size_bytes=5, url="/v1/files/v1/0", expires_at=0)
AT_STORE = FILE.model_copy(update={"path": "w", "url": "https://store/v1/files/w"})
SETTINGS = PodDoorSettings(requests_per_second=1.0, requests_burst=3.0, of_namespace=1, at_once=2)


class Authenticator:
    """The token is the namespace."""

    async def authenticate(self, authorization):
        return PodCaller(ObjectKey(authorization.removeprefix("Bearer "), "p"), "pod-uid")


class Service:
    def __init__(self):
        self.going_on = asyncio.Event()
        self.going_on.set()
        self.is_asked = asyncio.Event()

    async def grant_version(self, entry, version, query, limit):
        self.is_asked.set()
        await self.going_on.wait()
        return Grant(uid=query.uid, files=(FILE, AT_STORE), total_files=2)

    async def read_version_file(self, entry, version, number):
        return b"12345"


@pytest.fixture
def service():
    return Service()


@pytest.fixture
async def knock(service):
    world = SeenWorld()
    for uid, namespace in (("v1", "search"), ("v2", "payments")):
        ready = make_version(uid=uid, namespace=namespace, conditions=(make_condition(),))
        world.versions[uid] = ready
    door = PodDoor(service, Authenticator(), world, clock=lambda: 0.0, settings=SETTINGS)
    server = GrantsServer(service, Authenticator(), world, clock=lambda: 0.0)
    authority = PrivateAuthority()
    port = await server.start("127.0.0.1", 0, authority.context(), door.routes)
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session:

        async def ask(namespace, uid="v1", number=None, **headers):
            headers["Authorization"] = f"Bearer {namespace}"
            if number is None:
                body = {"entries": [{"uid": uid}]}
                asked = session.post("/v1/pod/grants", json=body, headers=headers, ssl=trust)
            else:
                path = f"/v1/pod/files/{uid}/{number}"
                asked = session.get(path, headers=headers, ssl=trust)
            async with asked as answer:
                return answer.status, await answer.read()

        yield ask
    await server.stop()


async def test_small_files_are_asked_for_where_pods_may_ask_and_others_at_the_store(knock):
    status, body = await knock("search")
    (grant,) = GrantResponse.model_validate_json(body).grants
    assert status == 200
    assert [file.url for file in grant.files] == ["/v1/pod/files/v1/0", AT_STORE.url]
    assert await knock("search", number=0) == (200, b"12345")
    assert await knock("search", number=0, Range="bytes=1-2") == (206, b"23")


async def test_a_file_of_another_namespace_is_no_file(knock):
    status, body = await knock("search", uid="v2", number=0)
    assert status == 503
    assert b"NotKnownYet" in body


async def test_a_namespace_that_asks_too_often_waits_and_others_do_not(knock):
    said = [(await knock("search"))[0] for _ in range(4)]
    assert said == [200, 200, 200, 429]
    assert (await knock("payments", uid="v2"))[0] == 200


async def test_no_namespace_holds_all_places(knock, service):
    service.going_on.clear()
    waiting = asyncio.create_task(knock("search"))
    await service.is_asked.wait()
    assert (await knock("search"))[0] == 429
    other = asyncio.create_task(knock("payments", uid="v2"))
    service.going_on.set()
    assert (await waiting)[0] == (await other)[0] == 200
