"""Objects that are replaced, hidden and deleted under a transfer, in buckets that keep versions.

The bucket is real; what happens half-way happens between two requests of one file.
"""

from __future__ import annotations

import pytest

from fakes.fault_proxy import Fault
from fakes.s3_node import MIB, MODEL, WEIGHTS, s3_node
from modelcache_operator.decide.source_check import judge_listing

KEY = "m/model.safetensors"
OTHER = bytes(len(WEIGHTS))
EXPIRED = b"<Error><Code>ExpiredToken</Code></Error>"


@pytest.fixture
async def node(seaweed, data, tmp_path):
    async with s3_node(seaweed, data, tmp_path) as own:
        yield own


def keep_versions(node, status="Enabled"):
    node.bucket.client.put_bucket_versioning(
        Bucket=node.bucket.name, VersioningConfiguration={"Status": status}
    )


def half_way(node, act):
    """The first answer about the weights breaks off; then this happens to them."""
    node.store.script("model.safetensors", Fault(close_after=9 * MIB, hook=act), times=1)


def replace(node):
    return lambda: node.bucket.put(KEY, OTHER)


async def test_C12_an_object_replaced_half_way_is_finished_from_its_version(node):
    keep_versions(node)
    node.put_model()
    await node.want()
    half_way(node, replace(node))
    async with node.started():
        assert await node.holds() == MODEL
    assert node.bucket.client.get_object(Bucket=node.bucket.name, Key=KEY)["Body"].read() == OTHER


async def test_C21_an_object_hidden_half_way_is_finished_and_gone_at_the_next_look(node):
    keep_versions(node)
    node.put_model()
    version = node.version()
    before = await node.door.sources.resolve(version)
    await node.want()
    half_way(node, lambda: node.bucket.delete(KEY))
    async with node.started():
        assert await node.holds() == MODEL
    after = await node.door.sources.resolve(version)
    found = judge_listing("v1", before.digest, before, after)
    assert (found.reason, found.is_gone) == ("SourceGone", True)
    assert "model.safetensors" in found.message


async def test_C21_a_version_deleted_half_way_is_one_exact_reason(node):
    keep_versions(node)
    node.put_model()
    await node.want()
    listed = node.bucket.client.list_object_versions(Bucket=node.bucket.name, Prefix=KEY)
    version_id = listed["Versions"][0]["VersionId"]
    half_way(
        node,
        lambda: node.bucket.client.delete_object(
            Bucket=node.bucket.name, Key=KEY, VersionId=version_id
        ),
    )
    async with node.started():
        reason, message = await node.fails()
    assert reason == "SourceGone"
    assert "model.safetensors" in message
    assert "NoSuchVersion" in message


async def test_C12_the_null_version_of_a_suspended_bucket_is_told_by_its_etag(node):
    keep_versions(node)
    keep_versions(node, "Suspended")
    node.put_model()
    await node.want()
    half_way(node, replace(node))
    async with node.started():
        reason, message = await node.fails()
    assert reason == "SourceChanged"
    assert "model.safetensors" in message


async def test_C12_a_suspended_bucket_still_has_the_versions_from_before(node):
    keep_versions(node)
    node.put_model()
    keep_versions(node, "Suspended")
    node.bucket.put("m/config.json", MODEL["config.json"])
    manifest = await node.door.sources.resolve(node.version())
    assert [file.path for file in manifest.files if file.version_id] == ["model.safetensors"]
    await node.want()
    half_way(node, replace(node))
    async with node.started():
        assert await node.holds() == MODEL


async def test_C09_a_token_that_expires_half_way_is_renewed_for_the_same_version(node, data):
    keep_versions(node)
    node.put_model()
    await node.want()
    replaced = replace(node)

    def expire():
        replaced()
        data.put_credentials("store", node.bucket.store.access_key, node.bucket.store.secret_key)

    node.store.script("model.safetensors", Fault(close_after=9 * MIB), times=1)
    node.store.script("model.safetensors", Fault(status=400, body=EXPIRED, hook=expire), times=1)
    async with node.started():
        assert await node.holds() == MODEL
    assert node.store.total_bytes < 1.2 * len(WEIGHTS)
