"""Tokens: whose they are, and how ours are renewed while we run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from modelcache_api.names import GRANT_AUDIENCE
from modelcache_kube import CACHE_NODES, ConnectConfig, Forbidden, TokenIdentity, connect
from modelcache_kube.connection import TokenFile
from modelcache_kube.token_review import parse_token_review

pytestmark = pytest.mark.cluster
SYSTEM, AGENT = "modelcache-system", "modelcache-agent"


@pytest.fixture
def credentials(installed, tmp_path, name):
    installed.add_node(name, wait=False)
    yield installed.agent_credentials(name, SYSTEM, AGENT, tmp_path, mark_running=False)
    installed.remove_node(name)


async def test_review_tells_service_account_node_and_pod(kube, credentials, name):
    token = credentials.grant_token_file.read_text()
    identity = await kube.token_review(token, [GRANT_AUDIENCE])
    assert identity.authenticated
    assert identity.audiences == (GRANT_AUDIENCE,)
    assert identity.username == f"system:serviceaccount:{SYSTEM}:{AGENT}"
    assert identity.node_name == name
    assert identity.node_uid
    assert (identity.pod_name, identity.pod_uid) == (credentials.pod_name, credentials.pod_uid)


@pytest.mark.parametrize("audience", [GRANT_AUDIENCE, "something-else"])
async def test_token_of_another_audience_is_not_authenticated(kube, credentials, audience):
    identity = await kube.token_review(credentials.token_file.read_text(), [audience])
    assert not identity.authenticated
    assert not identity.username


@pytest.mark.parametrize("token", ["x", "a.b.c", "ü"])
async def test_unknown_token_is_no_error(kube, token):
    identity = await kube.token_review(token, [GRANT_AUDIENCE])
    assert not identity.authenticated
    assert identity.error


async def test_token_that_was_replaced_is_read_again(credentials):
    good = credentials.token_file.read_text()
    credentials.token_file.write_text("expired\n")
    async with connect(ConnectConfig(kubeconfig=credentials.kubeconfig)) as agent:
        with pytest.raises(Forbidden) as refused:
            await agent.list(CACHE_NODES)
        assert refused.value.code == 401
        credentials.token_file.write_text(good + "\n")
        assert await agent.list(CACHE_NODES)
        credentials.token_file.write_text("half written, not read yet")
        assert await agent.list(CACHE_NODES)


def test_token_is_read_each_minute_and_kept_while_the_file_is_away(tmp_path):
    now = 0.0
    file = tmp_path / "token"
    token = TokenFile(file, clock=lambda: now)
    configuration = SimpleNamespace(api_key={})

    def sent():
        token.refresh(configuration)
        return configuration.api_key.get("BearerToken")

    assert sent() is None
    file.write_text("one\n")
    assert sent() == "Bearer one"
    file.write_text("two")
    now = 59.0
    assert sent() == "Bearer one"
    now = 60.0
    assert sent() == "Bearer two"
    file.unlink()
    now = 120.0
    assert sent() == "Bearer two"
    file.write_text("")
    assert sent() == "Bearer two"
    file.write_text("three")
    assert sent() == "Bearer three"


USER = {"username": "system:serviceaccount:ns:name", "extra": {}}
REVIEWS = [
    pytest.param({}, id="nothing"),
    pytest.param({"status": {}}, id="an empty status"),
    pytest.param({"status": {"authenticated": "true", "user": USER}}, id="a word for true"),
    pytest.param({"status": {"error": "no", "user": None}}, id="a refusal"),
]


@pytest.mark.parametrize("review", REVIEWS)
def test_nothing_but_true_is_authenticated(review):
    assert not parse_token_review(review).authenticated


def test_claim_that_is_not_unique_is_none():
    extra = {"authentication.kubernetes.io/node-name": ("a", "b")}
    assert TokenIdentity(authenticated=True, extra=extra).node_name is None
