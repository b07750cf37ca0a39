"""A repository of the hub on two nodes: real operator and agents; hub and CDN are stand-ins."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from fakes.hub_server import HubServer
from fakes.world import World
from modelcache_agent.decide.possession import SPAN_BYTES, SPANS
from modelcache_testbed.kube_api import find_condition
from modelcache_testbed.models import build_version, make_safetensors

pytestmark = pytest.mark.cluster

NAME = "org/model"
TOKEN = "hf_example"
MODEL = {
    "config.json": b"{}",
    "tokenizer/tokenizer.json": b"[" + b" " * 100_000 + b"]",
    "model.safetensors": make_safetensors(20_000_000, 1),
    "pytorch_model.bin": b"a copy",
}
TAKEN = {path: hashlib.sha256(MODEL[path]).hexdigest() for path in MODEL if "pytorch" not in path}


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    with HubServer() as running:
        yield running


@pytest.fixture(scope="module")
def team(world: World) -> str:
    namespace = world.add_namespace("team")
    metadata = {"name": "models-hub", "namespace": namespace}
    data = {"stringData": {"HF_TOKEN": TOKEN}}
    world.cluster.apply([{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **data}])
    return namespace


def apply_version(world, team, hub, name, uri=f"hf://{NAME}", secret="models-hub", **spec):
    document = build_version(team, name, uri, hub.url, secret=secret, model=NAME, **spec)
    world.cluster.apply([document])


@pytest.fixture(scope="module")
def commit(world, team, hub):
    """The repository's first content, on both nodes."""
    repository = hub.add(NAME, MODEL, is_private=True, is_gated=True, admitted={TOKEN})
    commit = repository.references["main"]
    hold(world, team, hub, "v1")
    return commit


def hold(world, team, hub, name):
    apply_version(world, team, hub, name)
    world.apply_cache(team, name, name, copies=2)
    world.wait_ready(team, name, copies=2)
    world.wait(lambda: world.warm_nodes(team, name) == set(world.nodes), "both labels")


def test_a_gated_private_repository_is_held_at_its_commit_on_both_nodes(world, team, hub, commit):
    status = world.version(team, "v1")["status"]
    assert (status["sourceRevision"], status["files"]) == (commit, 3)
    for node in world.nodes:
        assert list(world.trees(node).values()) == [TAKEN]
        (entry,) = world.cache_node(node)["spec"]["entries"]
        assert entry["revision"] == commit
    assert all("authorization" not in one.headers for one in hub.cdn.requests)
    assert {one.headers.get("authorization") for one in hub.requests} == {f"Bearer {TOKEN}"}


@pytest.mark.usefixtures("commit")
def test_C06_C23_a_branch_that_moved_on_is_another_version(world, team, hub):
    first = world.version(team, "v1")["status"]
    newer = {**MODEL, "config.json": b'{"new": 1}'}
    hub.repositories[NAME].commit(newer)
    read = hub.cdn.sent_bytes
    hold(world, team, hub, "v2")
    proofs = len(world.nodes) * SPANS * SPAN_BYTES
    assert hub.cdn.sent_bytes - read <= proofs, "the same weights are shown, not read again"
    second = world.version(team, "v2")["status"]
    assert second["sourceRevision"] != first["sourceRevision"]
    assert world.version(team, "v1")["status"]["sourceRevision"] == first["sourceRevision"]
    often = '{"spec": {"source": {"recheckInterval": "10s"}}}'
    world.cluster.kubectl("patch", "modelversion/v1", "-n", team, "--type=merge", "-p", often)

    def source_state():
        status = world.version(team, "v1")["status"]
        return find_condition(status, "SourceCurrent").get("reason")

    world.wait(lambda: source_state() == "SourceChanged", "the branch to be seen to have moved")
    assert world.warm_nodes(team, "v1") == set(world.nodes)


REFUSED = [
    pytest.param("gated", None, "SourceGated", id="gated"),
    pytest.param("private", None, "AuthFailed", id="private"),
    pytest.param("missing", "models-hub", "SourceNotFound", id="missing"),
    pytest.param("open@v9", None, "RevisionNotFound", id="no such revision"),
    pytest.param("open", "models-s3", "SecretInvalid", id="a Secret of a store"),
]


@pytest.mark.parametrize(("name", "secret", "reason"), REFUSED)
def test_what_is_refused_has_one_reason_on_version_and_cache(
    world, team, hub, name, secret, reason
):
    hub.add("org/gated", MODEL, is_gated=True)
    hub.add("org/private", MODEL, is_private=True)
    hub.add("org/open", MODEL)
    own = reason.lower()
    apply_version(world, team, hub, own, f"hf://org/{name}", secret)
    world.apply_cache(team, own, own, copies=1)
    version = world.wait_reason("modelversions", team, own, reason)
    assert version["status"] == "False"
    assert len(version["message"]) > 40
    cache = world.wait_reason("modelcaches", team, own, "ModelVersionNotReady")
    assert reason in cache["message"]
    world.cluster.kubectl("delete", f"modelcache/{own}", f"modelversion/{own}", "-n", team)
