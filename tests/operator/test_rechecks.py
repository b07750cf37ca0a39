"""Sources that change, vanish or fall silent under versions that nodes hold."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
import yaml

from modelcache_kube import MODEL_VERSIONS
from modelcache_testbed.bucket import Bucket
from modelcache_testbed.models import make_model

pytestmark = pytest.mark.cluster

IN_SERVICE = (("True", "Resolved"), ("True", "Cached"))
# A period of at most 11 s, a second answer after 10 s, and a machine with other work to do.
SOON = 60
WEIGHTS = "m/model.safetensors"


@pytest.fixture
async def bucket(stage):
    """A bucket of the test's own that holds one model."""
    own = await asyncio.to_thread(Bucket, stage.store, stage.name)
    await asyncio.to_thread(put_model, own, 1)
    return own


def put_model(bucket, seed):
    for path, body in make_model(10_000, seed).items():
        bucket.put(f"m/{path}", body)


def weights(seed):
    return make_model(10_000, seed)["model.safetensors"]


@pytest.fixture
async def held(stage, bucket):
    """The model, verified on two nodes and looked at again each 10 s."""
    await hold(stage, bucket)
    return bucket


async def hold(stage, bucket, name="m1", cache="c1", **spec):
    spec.setdefault("recheck_interval", "10s")
    await stage.apply_version(name, uri=f"s3://{bucket.name}/m", **spec)
    await stage.apply_cache(cache, name, copies=2)
    await stage.until_cached(cache, copies="2/2")
    await stage.until(lambda: stage.version_source(name), ("True", "Resolved"))


async def in_service(stage, name="m1", cache="c1"):
    return await stage.version_ready(name), await stage.ready(cache)


async def run_cli(stage, *arguments):
    """Exit code, what is printed, and what is complained of."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "modelcache_cli", *arguments, "-n", stage.namespace],
        env={**os.environ, "KUBECONFIG": str(stage.cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


async def events(stage, reason, kind="ModelVersion"):
    told = await asyncio.to_thread(
        stage.cluster.kubectl, "get", "events", "-n", stage.namespace, "-o", "yaml"
    )
    return [
        event
        for event in yaml.safe_load(told)["items"]
        if event["reason"] == reason and event["involvedObject"]["kind"] == kind
    ]


async def test_C06_bytes_overwritten_with_as_many_others_are_noticed(stage, held):
    labels = await stage.labels()
    assert (await run_cli(stage, "verify", "m1"))[0] == 0
    for seed in (2, 3):
        held.put(WEIGHTS, weights(seed))
    await stage.until(stage.version_source, ("False", "SourceChanged"), seconds=SOON)
    assert await in_service(stage) == IN_SERVICE
    assert await stage.labels() == labels
    await stage.until(lambda: events(stage, "SourceChanged"), lambda found: len(found) == 1)
    state = f'name="m1",namespace="{stage.namespace}",reason="SourceChanged"'
    assert f"modelcache_version_source{{{state}}} 1.0" in await stage.metrics()

    code, printed, complaint = await run_cli(stage, "verify", "m1")
    assert code == 1
    assert "2 Cached" in printed
    assert complaint.startswith(f"error: {stage.namespace}/m1: SourceChanged: ")
    assert "1 file ('model.safetensors') changed" in complaint
    assert "kubectl modelcache new-version m1 --as" in complaint

    code, document, _ = await run_cli(stage, "new-version", "m1", "--as", "m2")
    assert code == 0
    await stage.kube.apply(MODEL_VERSIONS, yaml.safe_load(document), field_manager="a-user")
    await stage.until(lambda: stage.version_ready("m2"), ("True", "Resolved"))
    old, new = await stage.version("m1"), await stage.version("m2")
    assert old["status"]["sourceDigest"] != new["status"]["sourceDigest"]

    held.put(WEIGHTS, weights(1))
    await stage.until(stage.version_source, ("True", "Resolved"), seconds=SOON)
    assert (await run_cli(stage, "verify", "m1"))[0] == 0


async def test_C21_a_deleted_object_is_told_and_the_policy_decides(stage, held):
    held.delete(WEIGHTS)
    await stage.until(stage.version_source, ("False", "SourceGone"), seconds=SOON)
    assert await in_service(stage) == IN_SERVICE
    assert len(await stage.labels()) == 2
    assert "SourceGone: verified copies stay" in (await run_cli(stage, "verify", "m1"))[2]

    await stage.patch_version({"onSourceGone": "Drop"})
    await stage.until(lambda: in_service(stage), (("False", "SourceGone"),) * 2)
    await stage.until(stage.holders, set())
    await stage.until(stage.labels, {})
    assert "copies are taken from the nodes" in (await run_cli(stage, "verify", "m1"))[2]

    held.put(WEIGHTS, weights(1))
    await stage.until(lambda: in_service(stage), IN_SERVICE, seconds=SOON)
    await stage.until_cached(copies="2/2")


async def test_C21_a_bucket_that_is_gone_is_no_model_of_no_files(stage, held):
    for path in make_model(10_000, 1):
        held.delete(f"m/{path}")
    held.client.delete_bucket(Bucket=held.name)
    await stage.until(stage.version_source, ("False", "SourceGone"), seconds=SOON)
    assert await in_service(stage) == IN_SERVICE


async def test_C21_a_delete_marker_hides_and_its_removal_shows_again(stage, bucket):
    bucket.client.put_bucket_versioning(
        Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"}
    )
    put_model(bucket, 1)
    await hold(stage, bucket)
    marker = bucket.client.delete_object(Bucket=bucket.name, Key=WEIGHTS)
    assert marker["DeleteMarker"]
    await stage.until(stage.version_source, ("False", "SourceGone"), seconds=SOON)
    assert await in_service(stage) == IN_SERVICE
    bucket.client.delete_object(Bucket=bucket.name, Key=WEIGHTS, VersionId=marker["VersionId"])
    await stage.until(stage.version_source, ("True", "Resolved"), seconds=SOON)


async def test_C14_a_store_that_is_away_takes_nothing_back(stage, bucket):
    await hold(stage, bucket, onSourceGone="Drop")
    labels = await stage.labels()
    await asyncio.to_thread(stage.store.stop)
    try:
        away = ("Unknown", "EndpointUnreachable")
        await stage.until(stage.version_source, away, seconds=SOON)
        assert await in_service(stage) == IN_SERVICE
        assert await stage.labels() == labels
        assert "EndpointUnreachable" in (await run_cli(stage, "verify", "m1"))[2]
    finally:
        await asyncio.to_thread(stage.store.start)
    await stage.until(stage.version_source, ("True", "Resolved"), seconds=SOON)
    assert await stage.labels() == labels


async def test_C23_what_is_pinned_does_not_follow_a_name_that_moves(stage, held):
    await hold(stage, held, "pinned", "c2")
    adopted = (await stage.version("pinned"))["status"]["contentDigest"]
    await stage.patch_version({"digest": adopted}, "pinned")
    await stage.until(lambda: stage.version_source("pinned"), ("", ""))
    # Twice a period of the other one: a look at the pinned one would have come by then.
    for seed, found in ((2, ("False", "SourceChanged")), (1, ("True", "Resolved"))):
        held.put(WEIGHTS, weights(seed))
        await stage.until(stage.version_source, found, seconds=SOON)
        assert await stage.version_source("pinned") == ("", "")
        assert await in_service(stage, "pinned", "c2") == IN_SERVICE
    assert (await run_cli(stage, "verify", "pinned"))[0] == 0


async def test_another_way_to_the_store_is_tried_at_once(stage, bucket):
    await hold(stage, bucket, recheck_interval="720h")
    await stage.patch_version({"source": {"endpoint": "http://127.0.0.1:1"}})
    await stage.until(stage.version_source, ("Unknown", "EndpointUnreachable"))
    assert await in_service(stage) == IN_SERVICE
    await stage.patch_version({"source": {"endpoint": stage.store.endpoint}})
    await stage.until(stage.version_source, ("True", "Resolved"))


async def test_a_shorter_interval_holds_at_once(stage, bucket):
    await hold(stage, bucket, recheck_interval="720h")
    bucket.put(WEIGHTS, weights(2))
    await stage.patch_version({"source": {"recheckInterval": "10s"}})
    await stage.until(stage.version_source, ("False", "SourceChanged"))
