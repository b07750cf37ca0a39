from __future__ import annotations

from http import HTTPStatus

import pytest

from modelcache_operator.decide.grant_access import AgentAccount, Claims, PodState
from modelcache_operator.decide.world import NodeName, NodeView, Uid
from modelcache_operator.grant_authentication import (
    AuthenticationSettings,
    Authenticator,
    DeniedError,
)

GOOD = Claims("system:serviceaccount:sys:agent", "n1", "node-uid", "pod", "pod-uid")


class Callers:
    def __init__(self):
        self.tokens = {"good": GOOD}
        self.pods = {"pod": PodState("pod-uid", "n1")}
        self.reviews = 0

    async def review(self, token):
        self.reviews += 1
        return self.tokens.get(token)

    async def pod(self, namespace, name):
        assert namespace == "sys"
        return self.pods.get(name)


class World:
    def node(self, name):
        return NodeView(NodeName("n1"), Uid("node-uid"), {}) if name == "n1" else None


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def callers():
    return Callers()


@pytest.fixture
def authenticator(callers, now):
    settings = AuthenticationSettings(reviews_per_second=1.0, reviews_burst=3.0)
    account = AgentAccount("sys", "agent")
    return Authenticator(callers, World(), account, clock=lambda: now[0], settings=settings)


async def test_a_good_token_is_reviewed_once_a_minute(authenticator, callers, now):
    for _ in range(5):
        assert (await authenticator.authenticate("Bearer good")).node == "n1"
    assert callers.reviews == 1
    now[0] = 61.0
    await authenticator.authenticate("bearer good")
    assert callers.reviews == 2


async def test_a_deleted_pod_is_refused_within_seconds(authenticator, callers, now):
    await authenticator.authenticate("Bearer good")
    del callers.pods["pod"]
    now[0] = 11.0
    with pytest.raises(DeniedError) as caught:
        await authenticator.authenticate("Bearer good")
    assert caught.value.status == HTTPStatus.FORBIDDEN
    assert callers.reviews == 1


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic good", "good", "Bearer é"]
)
async def test_without_a_bearer_token_nobody_is_asked(authenticator, callers, header):
    with pytest.raises(DeniedError) as caught:
        await authenticator.authenticate(header)
    assert caught.value.status == HTTPStatus.UNAUTHORIZED
    assert callers.reviews == 0


async def test_bad_tokens_are_remembered_for_a_while(authenticator, callers, now):
    for _ in range(5):
        with pytest.raises(DeniedError):
            await authenticator.authenticate("Bearer bad")
    assert callers.reviews == 1
    callers.tokens["bad"] = GOOD
    now[0] = 11.0
    assert await authenticator.authenticate("Bearer bad")


async def test_a_flood_of_tokens_does_not_reach_the_api_server(authenticator, callers):
    await authenticator.authenticate("Bearer good")
    for number in range(10):
        with pytest.raises(DeniedError):
            await authenticator.authenticate(f"Bearer flood-{number}")
    assert callers.reviews == 3
    with pytest.raises(DeniedError) as caught:
        await authenticator.authenticate("Bearer flood-11")
    assert caught.value.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert caught.value.retry_after_seconds >= 1
    assert await authenticator.authenticate("Bearer good")


async def test_tokens_are_kept_as_hashes_only(authenticator):
    await authenticator.authenticate("Bearer good")
    assert "good" not in repr(vars(authenticator._reviews._accepted))
