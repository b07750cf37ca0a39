"""A folder of a plain web server on two nodes: real operator and agents, a real server, TLS."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.tls_world import PrivateAuthority
from fakes.web_sites import StaticSite, write_checksums, write_files
from fakes.world import World
from modelcache_testbed.kube_api import find_condition
from modelcache_testbed.models import build_version, make_safetensors

pytestmark = pytest.mark.cluster

MODEL = {
    "config.json": b"{}",
    "tokenizer/tokenizer.json": b"[" + b" " * 100_000 + b"]",
    "model.safetensors": make_safetensors(3_000_000, 1),
}
DIGESTS = {path: hashlib.sha256(body).hexdigest() for path, body in MODEL.items()}


@pytest.fixture(scope="module")
def authority() -> PrivateAuthority:
    return PrivateAuthority()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("www")


@pytest.fixture(scope="module")
def site(folder: Path, authority: PrivateAuthority) -> Iterator[StaticSite]:
    with StaticSite(folder, authority.context()) as running:
        yield running


@pytest.fixture(scope="module")
def team(world: World, authority: PrivateAuthority) -> str:
    namespace = world.add_namespace("web")
    metadata = {"name": "site-ca", "namespace": namespace}
    bundle = {"data": {"ca.crt": authority.pem.decode()}}
    world.cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **bundle}])
    return namespace


def apply_version(world, team, name, uri, **spec):
    document = build_version(team, name, uri, "", **spec)
    source = {"uri": uri, "caBundleRef": {"name": "site-ca"}, "recheckInterval": "10s"}
    document["spec"]["source"] = source
    world.cluster.apply([document])


def source_state(world, team):
    return find_condition(world.version(team, "v1")["status"], "SourceCurrent").get("reason")


@pytest.fixture(scope="module")
def held(world, team, site, folder):
    """The folder's first content, on both nodes."""
    write_files(folder / "minilm", MODEL)
    write_checksums(folder / "minilm")
    hold(world, team, site, "v1")


def hold(world, team, site, name):
    apply_version(world, team, name, f"{site.url}/minilm/")
    world.apply_cache(team, name, name, copies=2)
    world.wait_ready(team, name, copies=2)
    world.wait(lambda: world.warm_nodes(team, name) == set(world.nodes), "both labels")


@pytest.mark.usefixtures("held")
def test_C11_a_folder_with_checksums_is_held_on_both_nodes(world, team):
    assert world.version(team, "v1")["status"]["files"] == 3
    for node in world.nodes:
        assert list(world.trees(node).values()) == [DIGESTS]
    assert source_state(world, team) == "Resolved"


@pytest.mark.usefixtures("held")
def test_C23_other_files_under_the_same_names_are_another_version(world, team, site, folder):
    newer = {**MODEL, "model.safetensors": make_safetensors(3_000_000, 2)}
    shutil.rmtree(folder / "minilm")
    write_files(folder / "minilm", newer)
    write_checksums(folder / "minilm")
    world.wait(lambda: source_state(world, team) == "SourceChanged", "the change to be seen")
    hold(world, team, site, "v2")
    assert world.warm_nodes(team, "v1") == set(world.nodes)


REFUSED = [
    pytest.param("empty/", {}, "SourceNotFound", id="no checksum file"),
    pytest.param("empty/", {"files": ["m.bin"]}, "SourceNotFound", id="no such file"),
    pytest.param("odd/", {"checksumFile": "page.html"}, "SourceInvalid", id="no checksums"),
    pytest.param("odd/", {"checksumFile": "hostile.txt"}, "UnsafeKey", id="a step out"),
]


@pytest.mark.parametrize(("path", "spec", "reason"), REFUSED)
def test_what_is_refused_has_one_reason_on_version_and_cache(
    world, team, site, folder, path, spec, reason
):
    page = b"<html>Sign in</html>"
    hostile = f"{'0a' * 32}  ../../etc/passwd\n".encode()
    write_files(folder / "odd", {"page.html": page, "hostile.txt": hostile})
    apply_version(world, team, "odd", f"{site.url}/{path}", **spec)
    world.apply_cache(team, "odd", "odd", copies=1)
    assert len(world.wait_reason("modelversions", team, "odd", reason)["message"]) > 40
    cache = world.wait_reason("modelcaches", team, "odd", "ModelVersionNotReady")
    assert reason in cache["message"]
    world.cluster.kubectl("delete", "modelcache/odd", "modelversion/odd", "-n", team)
