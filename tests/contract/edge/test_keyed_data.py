"""Secrets and ConfigMaps of users, and the operator's own authority, on a real API server."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from modelcache_operator.adapters.authority_store import KubeAuthorityStore
from modelcache_operator.adapters.keyed_data import KubeKeyedData
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.ports.keyed_data import KeyedDataForbiddenError
from modelcache_operator.serving_certificate import RotationPlan, ServingCertificate

pytestmark = pytest.mark.cluster


async def test_secrets_and_config_maps_are_read_anew(cluster, namespace, kube):
    reader = KubeKeyedData(kube)
    key = ObjectKey(namespace, "thing")
    assert await reader.secret(key) is None
    assert await reader.config_map(key) is None
    cluster.kubectl("-n", namespace, "create", "secret", "generic", "thing", "--from-literal=k=one")
    cluster.kubectl("-n", namespace, "create", "cm", "thing", "--from-literal=k=plain")
    first = await reader.secret(key)
    assert first.data == {"k": b"one"}
    two = base64.b64encode(b"two").decode()
    patch = f'{{"data":{{"k":"{two}"}}}}'
    cluster.kubectl("-n", namespace, "patch", "secret", "thing", "-p", patch)
    second = await reader.secret(key)
    assert second.data == {"k": b"two"}
    assert second.revision != first.revision
    cluster.kubectl(
        "-n", namespace, "patch", "cm", "thing", "-p", f'{{"binaryData":{{"b":"{two}"}}}}'
    )
    assert (await reader.config_map(key)).data == {"k": b"plain", "b": b"two"}


async def test_what_rbac_forbids_is_told_apart(cluster, namespace, tmp_path):
    from modelcache_kube import ConnectConfig, connect

    powerless = cluster.service_account_kubeconfig(namespace, "default", tmp_path).kubeconfig
    async with connect(ConnectConfig(kubeconfig=powerless)) as kube:
        with pytest.raises(KeyedDataForbiddenError):
            await KubeKeyedData(kube).secret(ObjectKey(namespace, "thing"))


async def test_replicas_agree_on_one_authority_and_publish_it(cluster, system, kube):
    replicas = [
        ServingCertificate(
            KubeAuthorityStore(kube, system), ["127.0.0.1"], now=lambda: datetime.now(UTC)
        )
        for _ in range(4)
    ]
    await asyncio.gather(*(replica.ensure() for replica in replicas))
    published = cluster.api.get(f"/api/v1/namespaces/{system}/configmaps/modelcache-ca")
    stored = cluster.api.get(f"/api/v1/namespaces/{system}/secrets/modelcache-operator-ca")
    certificate = base64.b64decode(stored["data"]["tls.crt"]).decode()
    assert published["data"] == {"ca.crt": certificate}
    before = published["metadata"]["resourceVersion"]
    await replicas[0].ensure()
    again = cluster.api.get(f"/api/v1/namespaces/{system}/configmaps/modelcache-ca")
    assert again["metadata"]["resourceVersion"] == before, "nothing is written twice"


async def test_an_administrator_asks_for_a_new_authority_and_gets_one(cluster, system, kube):
    # The overlap is over as soon as it begins: the steps and their order are what is seen.
    serving = ServingCertificate(
        KubeAuthorityStore(kube, system),
        ["127.0.0.1"],
        now=lambda: datetime.now(UTC),
        plan=RotationPlan(overlap=timedelta(0)),
    )
    await serving.ensure()
    secret = f"/api/v1/namespaces/{system}/secrets/modelcache-operator-ca"
    bundle = f"/api/v1/namespaces/{system}/configmaps/modelcache-ca"
    old = cluster.api.get(bundle)["data"]["ca.crt"]
    cluster.api.patch(secret, {"metadata": {"annotations": {"modelcache.io/rotate": "now"}}})
    seen = []
    for _ in range(4):
        await serving.ensure()
        seen.append(cluster.api.get(bundle)["data"]["ca.crt"])
    announced, switched, retired, rested = seen
    new = announced.removeprefix(old)
    assert new, "both are trusted before the new one signs"
    assert (switched, retired, rested) == (new + old, new, new)
    kept = cluster.api.get(secret)
    assert base64.b64decode(kept["data"]["tls.crt"]).decode() == new
    assert set(kept["data"]) == {"tls.crt", "tls.key"}
    assert "modelcache.io/rotate" not in kept["metadata"].get("annotations", {})


async def test_a_replica_that_is_late_changes_nothing(cluster, system, kube):
    store = KubeAuthorityStore(kube, system)
    await ServingCertificate(store, ["127.0.0.1"], now=lambda: datetime.now(UTC)).ensure()
    stale = await store.read()
    assert await store.replace(replace(stale, previous=b"one"))
    assert not await store.replace(replace(stale, previous=b"two"))
    assert (await store.read()).previous == b"one"
    assert await store.replace(replace(await store.read(), previous=None))
