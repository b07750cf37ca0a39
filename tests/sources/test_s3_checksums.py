"""What S3 stores state of whole objects, and what asking for it costs."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections import Counter
from dataclasses import replace

import anycrc
import pytest

from fakes.announcing_store import AnnouncingStore
from fakes.fault_proxy import FaultProxy
from fakes.s3_stub import Answer, S3Stub, error, unversioned
from fakes.source_world import fail_to_resolve as fail
from fakes.source_world import make_version
from modelcache_testbed.bucket import Bucket

BODY = b"bytes of a model"
SHA256 = hashlib.sha256(BODY)
MIB = 1 << 20


def crc(model: str, size: int, body: bytes = BODY) -> str:
    return base64.b64encode(anycrc.Model(model).calc(body).to_bytes(size, "big")).decode()


STATED = {
    "SHA256": base64.b64encode(SHA256.digest()).decode(),
    "SHA1": base64.b64encode(hashlib.sha1(BODY).digest()).decode(),
    "CRC32": crc("CRC32-ISO-HDLC", 4),
    "CRC32C": crc("CRC32-ISCSI", 4),
    "CRC64NVME": crc("CRC64-NVME", 8),
}


@pytest.fixture
def bucket(seaweed, data):
    """One object for each algorithm; the store has computed each value itself and agreed."""
    data.put_credentials("store", seaweed.access_key, seaweed.secret_key)
    own = Bucket(seaweed, f"models-{secrets.token_hex(4)}")
    for name, value in STATED.items():
        own.client.put_object(
            Bucket=own.name, Key=f"m/{name}", Body=BODY, **{f"Checksum{name}": value}
        )
    return own


@pytest.fixture
def announcing(bucket):
    with AnnouncingStore(bucket) as store:
        yield store


def version_of(store, **more):
    return make_version(
        f"s3://{store.bucket.name}/m", endpoint=store.endpoint, secret="store", **more
    )


def stated_of(manifest):
    return {file.path: file.sha256 or file.checksum for file in manifest.files}


EXPECTED = {
    name: SHA256.hexdigest() if name == "SHA256" else f"{name.lower()}:{value}"
    for name, value in STATED.items()
}


async def test_what_the_listing_announces_is_asked_for_once(announcing, sources):
    version = version_of(announcing)
    manifest = await sources.resolve(version)
    assert stated_of(manifest) == EXPECTED
    assert set(announcing.heads.values()) == {1}
    uri = f"s3://{announcing.bucket.name}/m/CRC32"
    one = make_version(uri, endpoint=announcing.endpoint, secret="store")
    assert stated_of(await sources.resolve(one)) == {"CRC32": EXPECTED["CRC32"]}
    resolved = replace(
        version, status=version.status.model_copy(update={"source_digest": manifest.digest})
    )
    announcing.reset_counts()
    assert (await sources.resolve(resolved)).digest == manifest.digest
    assert not announcing.heads, "a look at a resolved version compares identities only"


async def test_a_store_whose_listing_says_nothing_can_be_asked_all_the_same(bucket, sources):
    host, _, port = bucket.store.endpoint.removeprefix("http://").partition(":")
    with FaultProxy((host, int(port))) as proxy:
        where = {"endpoint": proxy.endpoint, "secret": "store"}
        silent = await sources.resolve(make_version(f"s3://{bucket.name}/m", **where))
        assert set(stated_of(silent).values()) == {None}
        assert (sum(proxy.gets.values()), sum(proxy.heads.values())) == (2, 0)
        version = make_version(f"s3://{bucket.name}/m", checksums="Ask", **where)
        asked = await sources.resolve(version)
        assert (sum(proxy.gets.values()), sum(proxy.heads.values())) == (4, len(EXPECTED))
    assert stated_of(asked) == EXPECTED
    assert asked.digest == silent.digest, "what is stated is no part of the identity"


async def test_checksums_can_be_ignored(announcing, sources):
    manifest = await sources.resolve(version_of(announcing, checksums="Ignore"))
    assert set(stated_of(manifest).values()) == {None}
    assert not announcing.heads


@pytest.mark.parametrize("kind", ["FULL_OBJECT", "COMPOSITE"])
async def test_of_an_upload_in_parts_only_a_combined_checksum_is_taken(
    announcing, bucket, sources, kind
):
    body = secrets.token_bytes(6 * MIB)
    where = {"Bucket": bucket.name, "Key": "m/parts"}
    upload = bucket.client.create_multipart_upload(
        **where, ChecksumAlgorithm="CRC32", ChecksumType=kind
    )
    where["UploadId"] = upload["UploadId"]
    parts = []
    for number, piece in enumerate((body[: 5 * MIB], body[5 * MIB :]), start=1):
        done = bucket.client.upload_part(
            **where, PartNumber=number, Body=piece, ChecksumAlgorithm="CRC32"
        )
        parts.append({k: done[k] for k in ("ETag", "ChecksumCRC32")} | {"PartNumber": number})
    bucket.client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    manifest = await sources.resolve(version_of(announcing))
    whole = f"crc32:{crc('CRC32-ISO-HDLC', 4, body)}"
    assert stated_of(manifest)["parts"] == (whole if kind == "FULL_OBJECT" else None)
    assert announcing.heads[f"{bucket.name}/m/parts"] == (kind == "FULL_OBJECT")


async def test_a_version_is_asked_for_its_own_checksum(announcing, bucket, sources):
    bucket.client.put_bucket_versioning(
        Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"}
    )
    bucket.client.put_object(
        Bucket=bucket.name, Key="m/SHA256", Body=BODY, ChecksumSHA256=STATED["SHA256"]
    )
    manifest = await sources.resolve(version_of(announcing))
    assert stated_of(manifest) == EXPECTED
    assert [file.path for file in manifest.files if file.version_id] == ["SHA256"]


# --- stores that say one thing and do another: scripted ------------------------------------------


ANNOUNCED = "<ChecksumAlgorithm>CRC32</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"


def listed(*keys, words=ANNOUNCED):
    rows = "".join(
        f'<Contents><Key>{key}</Key><Size>{size}</Size><ETag>"e"</ETag>{words}</Contents>'
        for size, key in enumerate(keys, start=1)
    )
    return Answer(
        200,
        f'<?xml version="1.0"?><ListBucketResult><Name>models</Name>{rows}'
        "<IsTruncated>false</IsTruncated></ListBucketResult>",
    )


def script(head, *keys):
    """A store with these keys; `head` answers each HEAD, and what it answers is not told else."""

    def answer(request):
        if request.method == "HEAD":
            return head(request) if callable(head) else head
        return unversioned() if "versioning" in request.query else listed(*keys)

    return answer


def kinds(stub):
    return Counter(request.method for request in stub.requests)


@pytest.mark.parametrize("status", [400, 403, 405, 501])
async def test_C08_a_store_that_refuses_to_tell_is_asked_once_and_read_as_before(sources, status):
    keys = [f"m/f{number}" for number in range(20)]
    with S3Stub(script(Answer(status), *keys)) as stub:
        manifest = await sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint))
    assert set(stated_of(manifest).values()) == {None}
    assert kinds(stub)["HEAD"] == 1


@pytest.mark.parametrize("policy", ["WhenListed", "Ignore"])
async def test_C08_no_request_more_is_sent_to_a_store_without_checksums(sources, policy):
    def strict(request):
        if request.method == "HEAD" or any("checksum" in name for name in request.headers):
            return error(400, "InvalidRequest", "unknown header")
        if "versioning" in request.query:
            return unversioned()
        return listed("m/a", "m/b", words="")

    with S3Stub(strict) as stub:
        version = make_version("s3://models/m", endpoint=stub.endpoint, checksums=policy)
        found = await sources.resolve(version)
        page = await sources.sign(version, found.files)
    assert [("versioning" in r.query, r.method) for r in stub.requests] == [
        (False, "GET"),
        (True, "GET"),
    ]
    assert not any("checksum" in signed.url for signed in page.files)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        pytest.param(Answer(404), "SourceChanged", id="gone since"),
        pytest.param(Answer(200, "", {"ETag": '"other"'}), "SourceChanged", id="other bytes"),
        pytest.param(Answer(503), "Throttled", id="busy"),
    ],
)
async def test_a_resolution_that_was_overtaken_is_begun_again(sources, head, reason):
    with S3Stub(script(head, "m/a")) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert (found.reason, found.retry_after_seconds is not None) == (reason, True)


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        pytest.param(400, "ExpiredToken", "CredentialsExpired", id="C09"),
        pytest.param(403, "RequestTimeTooSkewed", "ClockSkew", id="C10"),
    ],
)
async def test_what_ails_every_request_is_no_refusal_to_tell(sources, status, code, reason):
    """The answer to a HEAD has no words, so that a listing is asked what is the matter."""
    told = []

    def answer(request):
        if request.method == "HEAD":
            told.append(request)
            return Answer(status)
        return error(status, code) if told else script(None, "m/a")(request)

    with S3Stub(answer) as stub:
        found = await fail(
            sources, make_version("s3://models/m", endpoint=stub.endpoint, secret="keys")
        )
    assert found.reason == reason
    assert len(told) == 1
