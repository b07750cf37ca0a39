"""The object store: keys, public buckets, versions, outages."""

import urllib.error
import urllib.request

import boto3
import pytest
from botocore.config import Config

from modelcache_testbed import Seaweed

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Seaweed(tmp_path_factory.mktemp("store") / "seaweed")
    store.up(public_buckets=["open"])
    yield store
    store.down()
    assert not store.folder.exists()


@pytest.fixture(scope="module")
def client(store):
    return boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        region_name=store.region,
        aws_access_key_id=store.access_key,
        aws_secret_access_key=store.secret_key,
        config=Config(s3={"addressing_style": "path"}),
    )


def test_anybody_may_read_a_public_bucket_only(store, client):
    for bucket in ("open", "closed"):
        client.create_bucket(Bucket=bucket)
        client.put_object(Bucket=bucket, Key="k", Body=b"bytes")
    with urllib.request.urlopen(f"{store.endpoint}/open/k") as response:
        assert response.read() == b"bytes"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{store.endpoint}/closed/k")


def test_versions_are_kept(client):
    client.create_bucket(Bucket="versioned")
    client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    first = client.put_object(Bucket="versioned", Key="k", Body=b"one")["VersionId"]
    client.put_object(Bucket="versioned", Key="k", Body=b"two")
    old = client.get_object(Bucket="versioned", Key="k", VersionId=first)
    assert old["Body"].read() == b"one"


def test_an_outage_keeps_address_and_data(store, client):
    client.create_bucket(Bucket="outage")
    client.put_object(Bucket="outage", Key="k", Body=b"x" * 3_000_000)
    endpoint = store.endpoint
    store.stop()
    assert not store.is_running
    store.start()
    assert store.endpoint == endpoint
    assert len(client.get_object(Bucket="outage", Key="k")["Body"].read()) == 3_000_000
