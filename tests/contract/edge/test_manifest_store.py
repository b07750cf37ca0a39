"""Manifests in ConfigMaps of a real API server."""

from __future__ import annotations

import asyncio
import random
import secrets

import pytest

from modelcache_api.manifest import (
    ContentFile,
    SourceFile,
    make_content_manifest,
    make_source_manifest,
)
from modelcache_operator.adapters.manifest_store import ConfigMapManifests
from modelcache_operator.decide.world import Uid
from modelcache_operator.ports.manifests import ManifestDamagedError

pytestmark = pytest.mark.cluster


def make_source(size=7):
    return make_source_manifest(
        [SourceFile("a", size, '"e"'), SourceFile("b", 1, '"f"', "v1", "k/b")]
    )


def make_content(seed=1, pieces=2):
    numbers = random.Random(seed)
    hashes = tuple(f"{numbers.getrandbits(256):064x}" for _ in range(pieces))
    return make_content_manifest([ContentFile("a", 7, f"{seed:064x}", hashes)])


@pytest.fixture
def uid():
    return Uid(f"uid-{secrets.token_hex(8)}")


@pytest.fixture
def replicas(kube, system):
    """Three replicas, each with a memory of its own."""
    return [ConfigMapManifests(kube, system) for _ in range(3)]


@pytest.fixture
def fresh(kube, system):
    """A replica that remembers nothing, each time it is asked for."""
    return lambda: ConfigMapManifests(kube, system)


def names_of(cluster, system, uid):
    selector = f"modelcache.io/model-version-uid={uid}"
    return cluster.kubectl("-n", system, "get", "cm", "-l", selector, "-o", "name").split()


async def test_a_source_manifest_comes_back_as_it_was(replicas, fresh, uid):
    source = make_source()
    assert await replicas[0].get_source(uid, source.digest) is None
    await asyncio.gather(*(replica.put_source(uid, source) for replica in replicas))
    assert await fresh().get_source(uid, source.digest) == source
    assert uid in await fresh().uids()


async def test_a_source_resolved_again_is_kept_beside_the_first(fresh, uid):
    first, second = make_source(7), make_source(8)
    await fresh().put_source(uid, first)
    await fresh().put_source(uid, second)
    assert await fresh().get_source(uid, first.digest) == first
    assert await fresh().get_source(uid, second.digest) == second


async def test_C50_the_first_of_several_contents_is_the_one(cluster, system, replicas, fresh, uid):
    contents = [make_content(seed) for seed in range(3)]
    adopted = await asyncio.gather(
        *(
            replica.adopt_content(uid, content)
            for replica, content in zip(replicas, contents, strict=True)
        )
    )
    assert len({item.manifest.digest for item in adopted}) == 1
    assert await fresh().get_content(uid) == adopted[0]
    again = await fresh().adopt_content(uid, make_content(9))
    assert again == adopted[0]
    assert len(names_of(cluster, system, uid)) == 2, "losers leave nothing behind"


async def test_equal_contents_are_one(cluster, system, replicas, uid):
    adopted = await asyncio.gather(
        *(replica.adopt_content(uid, make_content()) for replica in replicas)
    )
    assert all(item == adopted[0] for item in adopted)
    assert len(names_of(cluster, system, uid)) == 2


async def test_a_large_manifest_is_kept_in_parts(cluster, system, fresh, uid):
    content = make_content(pieces=60_000)  # of half a terabyte
    adopted = await fresh().adopt_content(uid, content)
    assert await fresh().get_content(uid) == adopted
    assert adopted.manifest == content
    assert len(names_of(cluster, system, uid)) >= 4


async def test_damage_is_noticed_on_reading(cluster, system, fresh, uid):
    adopted = await fresh().adopt_content(uid, make_content())
    part = next(name for name in names_of(cluster, system, uid) if "part" in name)
    cluster.kubectl("-n", system, "delete", part)
    with pytest.raises(ManifestDamagedError):
        await fresh().get_content(uid)
    cluster.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": part.partition("/")[2], "namespace": system},
                "binaryData": {"manifest": "aGVsbG8="},
            }
        ]
    )
    with pytest.raises(ManifestDamagedError):
        await fresh().get_content(uid)
    cluster.kubectl("-n", system, "delete", part)
    assert await fresh().adopt_content(uid, make_content()) == adopted, "the parts are restored"
    assert await fresh().get_content(uid) == adopted


async def test_a_missing_part_of_a_source_is_restored_by_the_next_resolve(
    cluster, system, fresh, uid
):
    await fresh().put_source(uid, make_source())
    part = next(name for name in names_of(cluster, system, uid) if "part" in name)
    cluster.kubectl("-n", system, "delete", part)
    await fresh().put_source(uid, make_source())
    assert await fresh().get_source(uid, make_source().digest) == make_source()


async def test_nobody_can_change_what_is_kept(cluster, system, fresh, uid):
    await fresh().put_source(uid, make_source())
    for name in names_of(cluster, system, uid):
        with pytest.raises(Exception, match="immutable"):
            cluster.kubectl(
                "-n",
                system,
                "patch",
                name,
                "--type=merge",
                "-p",
                '{"binaryData":{"manifest":"aGk="}}',
            )


async def test_deleting_a_version_leaves_nothing(cluster, system, replicas, fresh, uid):
    await replicas[0].put_source(uid, make_source())
    await replicas[0].adopt_content(uid, make_content())
    await replicas[0].delete(uid)
    await replicas[1].delete(uid)
    assert names_of(cluster, system, uid) == []
    assert await fresh().get_content(uid) is None
    assert uid not in await fresh().uids()


async def test_what_is_kept_in_memory_asks_nobody(operator_kubeconfig, system, uid):
    from modelcache_kube import ConnectConfig, connect

    requests = []
    config = ConnectConfig(kubeconfig=operator_kubeconfig)
    async with connect(config, on_request=lambda *request: requests.append(request)) as kube:
        manifests = ConfigMapManifests(kube, system)
        source = make_source()
        await manifests.put_source(uid, source)
        await manifests.adopt_content(uid, make_content())
        requests.clear()
        for _ in range(3):
            await manifests.get_source(uid, source.digest)
            await manifests.get_content(uid)
            await manifests.put_source(uid, source)
        assert requests == []
