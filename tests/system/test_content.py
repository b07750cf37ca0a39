"""What must never become Ready, and how it is told."""

from __future__ import annotations

import pytest

from fakes.layered_model import model_files
from fakes.world import World
from modelcache_testbed.models import make_safetensors

pytestmark = pytest.mark.cluster

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 12345678\n"
)
KINDS = [
    pytest.param("pointer", POINTER, "LFS", id="a Git LFS pointer"),
    pytest.param("html", b"<!DOCTYPE html><html><title>Sign in</title></html>", "HTML", id="HTML"),
    pytest.param(
        "xml",
        b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
        "XML",
        id="an XML error",
    ),
    pytest.param("cut", make_safetensors(500_000, 3)[:-1], "", id="a cut file"),
    pytest.param("empty", b"", "empty", id="no bytes"),
]


@pytest.fixture(scope="module")
def team(world: World) -> str:
    return world.add_namespace("team")


@pytest.mark.parametrize(("name", "body", "kind"), KINDS)
def test_C20_something_else_under_the_weights_name_is_never_ready(
    world: World, team: str, name: str, body: bytes, kind: str
) -> None:
    world.bucket.put(f"bad/{name}/config.json", b"{}")
    world.bucket.put(f"bad/{name}/model.safetensors", body)
    world.apply_version(team, name, f"bad/{name}")
    world.apply_cache(team, name, name, copies=1)
    ready = world.wait_reason("modelcaches", team, name, "NotAModel")
    assert ready["status"] == "False"
    assert "model.safetensors" in ready["message"]
    assert kind.lower() in ready["message"].lower()
    assert world.cache(team, name)["status"]["failures"][0]["reason"] == "NotAModel"
    uid = world.version(team, name)["metadata"]["uid"]
    assert world.warm_nodes(team, name) == set()
    entries = [world.entries(node).get(uid) for node in world.nodes]
    assert [e["state"] for e in entries if e] == ["Failed"]


def test_wrong_pin_is_a_digest_mismatch_with_both_digests(world: World, team: str) -> None:
    world.put_model("pinned", seed=5)
    wrong = "sha256:" + "0" * 64
    world.apply_version(team, "pinned", "pinned", digest=wrong)
    world.apply_cache(team, "pinned", "pinned", copies=1)
    ready = world.wait_reason("modelcaches", team, "pinned", "DigestMismatch")
    assert wrong[:20] in ready["message"]
    assert ready["message"].count("sha256:") == 2
    assert world.warm_nodes(team, "pinned") == set()


def test_right_pin_is_held(world: World, team: str) -> None:
    world.put_model("right", seed=6)
    world.apply_version(team, "first", "right")
    world.apply_cache(team, "first", "first", copies=1)
    world.wait_ready(team, "first", copies=1)
    world.wait(
        lambda: "contentDigest" in world.version(team, "first")["status"], "the content's digest"
    )
    digest = world.version(team, "first")["status"]["contentDigest"]
    world.apply_version(team, "second", "right", digest=digest)
    world.apply_cache(team, "second", "second", copies=1)
    world.wait_ready(team, "second", copies=1)
    assert world.version(team, "second")["status"]["contentDigest"] == digest


def test_two_nodes_agree_on_a_part_of_a_model_and_a_wider_part_is_another_content(
    world: World, team: str
) -> None:
    for path, body in model_files().items():
        world.bucket.put(f"layered/{path}", body)
    load = {"include": ["layers.1.*"]}
    world.apply_version(team, "part", "layered", load=load)
    world.apply_cache(team, "part", "part", copies=2)
    world.wait_ready(team, "part", copies=2)
    status = world.version(team, "part")["status"]
    assert 26 << 20 < status["sizeBytes"] < 27 << 20
    assert status["files"] == 3, "config, index and the one shard"
    entries = [world.entries(node)[uid_of(world, team, "part")] for node in world.nodes]
    assert {entry["contentDigest"] for entry in entries} == {status["contentDigest"]}
    pinned = status["contentDigest"]
    world.apply_version(team, "pinned-part", "layered", load=load, digest=pinned)
    world.apply_cache(team, "pinned-part", "pinned-part", copies=1)
    world.wait_ready(team, "pinned-part", copies=1)
    world.apply_version(team, "typo", "layered", load={"include": ["layer.*"]})
    ready = world.wait_reason("modelversions", team, "typo", "TensorsNotFound")
    assert "'layer.*'" in ready["message"]


def uid_of(world: World, team: str, name: str) -> str:
    return world.version(team, name)["metadata"]["uid"]


SOURCES = [
    pytest.param({"prefix": "nothing/here"}, "SourceNotFound", id="an empty prefix"),
    pytest.param({"secret": "missing"}, "SecretNotFound", id="no such Secret"),
    pytest.param({"endpoint": "http://127.0.0.1:9"}, "EndpointUnreachable", id="nobody listens"),
    pytest.param({"endpoint": "http://169.254.169.254"}, "SourceNotAllowed", id="metadata address"),
    pytest.param({"secret": None}, "AuthFailed", id="anonymous on a private bucket"),
]


@pytest.mark.parametrize(("change", "reason"), SOURCES)
def test_a_source_that_fails_has_one_reason_on_version_and_cache(
    world: World, team: str, change: dict, reason: str
) -> None:
    name = reason.lower()
    prefix = change.pop("prefix", "right")
    world.apply_version(team, name, prefix, **change)
    world.apply_cache(team, name, name, copies=1)
    version = world.wait_reason("modelversions", team, name, reason)
    assert version["status"] == "False"
    assert len(version["message"]) > 20
    cache = world.wait_reason("modelcaches", team, name, "ModelVersionNotReady")
    assert reason in cache["message"]
    world.cluster.kubectl("delete", f"modelcache/{name}", f"modelversion/{name}", "-n", team)
