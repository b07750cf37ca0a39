"""The first node's bytes beside what the store states of them: from a real store to a disk."""

from __future__ import annotations

import base64
import hashlib
import zlib

import anycrc
import pytest

from fakes.fault_proxy import Fault
from fakes.s3_node import MIB, MODEL, WEIGHTS, s3_node
from modelcache_agent.decide.possession import SPAN_BYTES, SPANS

DAMAGED = bytearray(WEIGHTS)
DAMAGED[9 * MIB] ^= 0xFF


def checksum(algorithm, body):
    """As the store states it, in base64."""
    value = {
        "SHA256": lambda: hashlib.sha256(body).digest(),
        "SHA1": lambda: hashlib.sha1(body).digest(),
        "CRC32": lambda: zlib.crc32(body).to_bytes(4, "big"),
        "CRC32C": lambda: anycrc.Model("CRC32-ISCSI").calc(body).to_bytes(4, "big"),
        "CRC64NVME": lambda: anycrc.Model("CRC64-NVME").calc(body).to_bytes(8, "big"),
    }[algorithm]()
    return base64.b64encode(value).decode()


def put(node, algorithm, prefix="m"):
    node.put_model(prefix, stated=lambda body: {f"Checksum{algorithm}": checksum(algorithm, body)})


def damage_weights(node):
    node.store.script("model.safetensors", Fault(flip_at=9 * MIB))


@pytest.fixture
async def node(seaweed, data, tmp_path):
    async with s3_node(seaweed, data, tmp_path) as own:
        yield own


@pytest.mark.parametrize("algorithm", ["CRC64NVME", "CRC32C", "CRC32", "SHA1"])
async def test_C22_damage_on_the_way_to_the_first_node_is_told_by_the_stores_checksum(
    node, algorithm
):
    put(node, algorithm)
    damage_weights(node)
    await node.want()
    async with node.started():
        reason, message = await node.fails()
    assert reason == "DigestMismatch"
    assert "model.safetensors" in message
    name, told = algorithm.lower(), checksum(algorithm, WEIGHTS)
    assert f"the source states {name}:{told}" in message
    assert f"the bytes have the checksum {name}:{checksum(algorithm, bytes(DAMAGED))}" in message
    assert "v1" not in node.door.manifests.contents, "nothing of it is proposed"


async def test_C22_a_file_damaged_once_is_read_again_and_agrees(node):
    put(node, "CRC64NVME")
    node.store.script("model.safetensors", Fault(flip_at=MIB), times=1)
    await node.want()
    async with node.started():
        assert await node.holds() == MODEL


async def test_C22_damage_on_the_way_to_the_first_node_is_told_by_the_stores_sha256(node):
    put(node, "SHA256")
    damage_weights(node)
    await node.want()
    async with node.started():
        reason, message = await node.fails()
    assert reason == "DigestMismatch"
    assert "model.safetensors" in message
    assert hashlib.sha256(WEIGHTS).hexdigest() in message
    assert hashlib.sha256(DAMAGED).hexdigest() in message


async def test_weights_with_a_stated_sha256_that_the_node_holds_are_not_read_again(node):
    put(node, "SHA256")
    put(node, "SHA256", "same")
    await node.want()
    async with node.started():
        assert await node.holds() == MODEL
        node.store.reset_counts()
        await node.want("v2", "same")
        assert await node.holds("v2") == MODEL
    name = f"{node.bucket.name}/same/model.safetensors"
    assert 0 < node.store.body_bytes[name] <= SPANS * SPAN_BYTES, "the store shows that it has them"


async def test_C08_bytes_without_a_stated_checksum_are_trusted_at_the_first_fetch(node):
    node.put_model()
    await node.want(checksums="Ignore")
    async with node.started():
        assert await node.holds() == MODEL
    assert not node.store.heads


async def test_C08_framing_that_leaked_into_an_object_is_told_and_not_retried(node):
    """Old stores kept the chunks' lengths of an upload inside the object."""
    framed = b"1000000;chunk-signature=0a0a\r\n" + WEIGHTS
    node.put_model()
    node.bucket.put("m/model.safetensors", framed)
    await node.want()
    async with node.started():
        reason, message = await node.fails()
    assert reason == "NotAModel"
    assert "model.safetensors" in message
    assert node.store.gets[f"{node.bucket.name}/m/model.safetensors"] == 1
