"""What a hub can refuse or do wrong, and the one reason that it gets."""

from __future__ import annotations

import json

import pytest

from fakes.hub_http import Told
from fakes.source_world import fail_to_resolve as fail
from fakes.source_world import make_version
from modelcache_operator.ports.sources import SourceError

MODEL = {"config.json": b"{}", "model.safetensors": b"weights"}
OID = "0a" * 20


def version(hub, uri="hf://org/name", **more):
    return make_version(uri, endpoint=hub.url, **more)


@pytest.mark.parametrize(
    ("about", "secret", "reason", "says"),
    [
        pytest.param(None, None, "AuthFailed", "private repositories and for those", id="neither"),
        pytest.param(None, "hub", "SourceNotFound", "private ones that it hides", id="missing"),
        pytest.param(
            {"is_private": True}, None, "AuthFailed", "name a Secret with HF_TOKEN", id="private"
        ),
        pytest.param(
            {"is_private": True}, "hub", "SourceNotFound", "let the account", id="private, another"
        ),
        pytest.param({"is_gated": True}, None, "SourceGated", "credentialsSecretRef", id="gated"),
        pytest.param(
            {"is_gated": True}, "hub", "SourceGated", "wait until that is granted", id="not let in"
        ),
        pytest.param({"is_disabled": True}, None, "SourceNotFound", "disabled", id="taken down"),
    ],
)
async def test_missing_private_and_gated_repositories(
    hub, hub_sources, about, secret, reason, says
):
    hub.tokens.add("hf_example")
    if about is not None:
        hub.add("org/name", MODEL, **about)
    found = await fail(hub_sources, version(hub, secret=secret))
    assert (found.reason, found.retry_after_seconds) == (reason, None)
    assert says in found.message
    assert "hf_example" not in found.message


async def test_with_the_right_token_private_and_gated_repositories_are_resolved(hub, hub_sources):
    hub.add("org/name", MODEL, is_private=True, is_gated=True, admitted={"hf_example"})
    assert len((await hub_sources.resolve(version(hub, secret="hub"))).files) == 2


async def test_a_token_that_the_hub_does_not_know(hub, hub_sources, data):
    hub.add("org/name", MODEL)
    found = await fail(hub_sources, version(hub, secret="hub"))
    assert found.reason == "AuthFailed"
    assert "does not know the token" in found.message
    data.put_secret("hub", HF_TOKEN="hf_renewed")
    hub.tokens.add("hf_renewed")
    assert (await hub_sources.resolve(version(hub, secret="hub"))).files, "no restart is needed"


async def test_a_secret_without_the_key_names_it(hub, hub_sources):
    found = await fail(hub_sources, version(hub, secret="keys"))
    assert found.reason == "SecretInvalid"
    assert "no key HF_TOKEN" in found.message
    assert (await fail(hub_sources, version(hub, secret="nope"))).reason == "SecretNotFound"
    assert not hub.requests


async def test_a_revision_that_is_not_there(hub, hub_sources):
    hub.add("org/name", MODEL)
    found = await fail(hub_sources, version(hub, "hf://org/name@v9"))
    assert (found.reason, found.retry_after_seconds) == ("RevisionNotFound", None)
    assert "'v9'" in found.message


@pytest.mark.parametrize("what", ["commit", "repository", "file"])
async def test_C21_what_was_resolved_may_be_gone_later(hub, hub_sources, what):
    repository = hub.add("org/name", MODEL)
    found = await hub_sources.resolve(version(hub))
    if what == "commit":
        repository.commits.clear()
    elif what == "file":
        repository.commits[found.revision].clear()
    else:
        hub.repositories.clear()
        hub.tokens.add("hf_example")
    secret = "hub" if what == "repository" else None
    with pytest.raises(SourceError) as caught:
        await hub_sources.sign(version(hub, secret=secret), found.files, found.revision)
    assert caught.value.reason == "SourceGone"


REFUSALS = [
    pytest.param(Told(429, headers={"Retry-After": "77"}), "Throttled", 77.0, id="429"),
    pytest.param(Told(429, headers={"RateLimit": '"api";r=0;t=55'}), "Throttled", 56.0, id="quota"),
    pytest.param(Told(429, headers={"RateLimit": '"api";r=9;t=55'}), "Throttled", 60.0, id="other"),
    pytest.param(Told(500), "EndpointUnreachable", 15.0, id="500"),
    pytest.param(Told(503, headers={"Retry-After": "9"}), "EndpointUnreachable", 9.0, id="503"),
    pytest.param(Told(504), "EndpointUnreachable", 15.0, id="504"),
    pytest.param(Told(408), "EndpointUnreachable", 15.0, id="408"),
    pytest.param(Told(cut=True), "EndpointUnreachable", 15.0, id="a broken connection"),
    pytest.param(Told(400), "SourceError", 60.0, id="400"),
]
LOOP = Told(307, headers={"Location": "?again"})
ODDITIES = [
    pytest.param(Told(200, b"<html>hello"), "SourceError", 60.0, id="a web page"),
    pytest.param(Told(200, b"[7]"), "SourceError", 60.0, id="another shape"),
    pytest.param(Told(200, b"[" * 100_000), "SourceError", 60.0, id="nested without end"),
    pytest.param(Told(200, b'{"id": "x"}'), "SourceError", 60.0, id="no commit"),
    pytest.param(Told(200, b'{"id": "x", "sha": "../.."}'), "SourceError", 60.0, id="no hash"),
    pytest.param(Told(200, b'{"id": "../x"}'), "SourceError", 60.0, id="no name"),
    pytest.param(Told(302, headers={"Location": "ftp://x/"}), "SourceNotAllowed", None, id="ftp"),
    pytest.param(LOOP, "SourceError", 60.0, id="a loop"),
]


async def check_step(hub, sources, part, told, reason, pause):
    hub.add("org/name", MODEL)
    hub.override = lambda asked: told if part in asked.path else None
    found = await fail(sources, version(hub))
    assert (found.reason, found.retry_after_seconds) == (reason, pause)
    asked = [one for one in hub.requests if part in one.path]
    assert len(asked) <= (20 if told is LOOP else 1), "our queue tries again, not the library"


@pytest.mark.parametrize(("told", "reason", "pause"), REFUSALS)
@pytest.mark.parametrize("part", ["/revision/", "/tree/", "/resolve/"])
async def test_a_refusal_has_one_reason_at_every_step(hub, hub_sources, told, reason, pause, part):
    await check_step(hub, hub_sources, part, told, reason, pause)


@pytest.mark.parametrize(("told", "reason", "pause"), ODDITIES)
@pytest.mark.parametrize("part", ["/revision/", "/tree/"])
async def test_what_is_no_answer_of_a_hub(hub, hub_sources, told, reason, pause, part):
    await check_step(hub, hub_sources, part, told, reason, pause)


@pytest.mark.parametrize(
    "change",
    [
        {"oid": "x"},
        {"oid": None},
        {"size": -1},
        {"size": "7"},
        {"path": None},
        {"lfs": {"oid": "zz", "size": 7, "pointerSize": 1}},
        {"lfs": {"oid": "aa" * 32, "size": None, "pointerSize": 1}},
        {"lfs": []},
        {"type": None},
    ],
    ids=json.dumps,
)
async def test_a_row_that_is_no_file_makes_no_list(hub, hub_sources, change):
    hub.add("org/name", MODEL)
    row = {"type": "file", "oid": OID, "size": 7, "path": "a"} | change
    hub.override = lambda asked: (
        Told(200, json.dumps([row]).encode()) if "/tree/" in asked.path else None
    )
    found = await fail(hub_sources, version(hub))
    assert found.reason in ("SourceError", "SourceNotFound")


async def test_a_path_that_is_listed_twice_makes_no_list(hub, hub_sources):
    hub.add("org/name", MODEL)
    row = {"type": "file", "oid": OID, "size": 7, "path": "a"}
    hub.override = lambda asked: (
        Told(200, json.dumps([row, row]).encode()) if "/tree/" in asked.path else None
    )
    assert (await fail(hub_sources, version(hub))).reason == "SourceError"


async def test_words_of_the_hub_enter_no_message_and_no_log(hub, hub_sources, caplog):
    hub.add("org/name", MODEL)
    hostile = {"X-Error-Message": "evil words", "X-Error-Code": "evil;code", "X-HF-Warning": "evil"}
    hub.override = lambda _: Told(418, b"evil", hostile)
    found = await fail(hub_sources, version(hub))
    assert "evil" not in found.message
    hub.override = lambda asked: None
    answer = hub.answer
    hub.answer = lambda asked: Told(
        (told := answer(asked)).status, told.body, {**told.headers, "X-HF-Warning": "evil"}
    )
    await hub_sources.resolve(version(hub))
    assert "evil" not in caplog.text
