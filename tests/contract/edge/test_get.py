"""`modelcache-agent get` with a real bound token, on a real store."""

from __future__ import annotations

import asyncio

import pytest

from contract.edge.grants_door import propose
from fakes.fault_proxy import Fault, FaultProxy
from fakes.fetch_world import safetensors_body
from fakes.get_world import GetProgram

pytestmark = pytest.mark.cluster

MIB = 1 << 20
MODEL = {"config.json": b"{}", "model.safetensors": safetensors_body(40 * MIB, seed=7)}
SIZE = sum(map(len, MODEL.values()))


@pytest.fixture
def store(seaweed):
    host, _, port = seaweed.endpoint.removeprefix("http://").partition(":")
    with FaultProxy((host, int(port))) as proxy:
        yield proxy


@pytest.fixture
def program(door, pod, tmp_path):
    authority = tmp_path / "ca.crt"
    authority.write_text(door.authority)
    own = GetProgram(door.url, authority, pod.grant_token_file, tmp_path / "models")
    yield own
    own.close()


@pytest.fixture
async def entry(door, pod, store):
    own = await door.add_version(MODEL, endpoint=store.endpoint)
    door.make_ready(own, pod.namespace, "minilm-v1")
    return own


async def test_C13_killed_and_run_again_it_is_whole_and_little_was_read_twice(
    program, pod, store, entry
):
    store.script("model.safetensors", Fault(trickle=(MIB // 4, 0.02)))
    killed = program.start(f"{pod.namespace}/minilm-v1")
    await asyncio.to_thread(program.await_bytes, lambda: store.total_bytes, 20 * MIB)
    killed.kill()
    await asyncio.to_thread(killed.wait)
    store.heal()
    code, said = await asyncio.to_thread(program.run, "minilm-v1")
    assert (code, program.read()) == (0, MODEL), said
    assert store.total_bytes - SIZE <= 4 * 8 * MIB
    before = store.total_bytes
    code, said = await asyncio.to_thread(program.run, "minilm-v1")
    assert (code, store.total_bytes) == (0, before), said


async def test_what_the_nodes_have_read_is_what_the_pod_must_find(program, door, pod, entry, agent):
    door.world.add_node(agent.name, agent.uid, [entry])
    await door.post("/v1/proposals", agent.token, propose(entry, MODEL))
    adopted = (await door.manifests.get_content(entry.uid)).manifest.digest
    door.make_ready(entry, pod.namespace, "minilm-v1", content_digest=adopted)
    code, said = await asyncio.to_thread(program.run, "minilm-v1")
    assert (code, program.read()) == (0, MODEL), said
    assert adopted in said
    assert "no node has read it yet" not in said


async def test_another_namespaces_pod_is_told_why_not(program, make_pod, tenants, entry):
    stranger = make_pod(tenants[1])
    program.token = stranger.grant_token_file
    code, said = await asyncio.to_thread(program.run, f"{tenants[0]}/minilm-v1")
    assert code == 3
    assert "GrantRefused: a pod is granted ModelVersions of its own namespace alone" in said
    assert not (program.target / "model").exists()
