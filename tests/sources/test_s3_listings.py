"""Listings and signed URLs against a real store."""

from __future__ import annotations

import secrets
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from fakes.source_world import make_version
from modelcache_api.manifest import SourceFile
from modelcache_operator.ports.sources import SourceError
from modelcache_testbed.bucket import Bucket


@pytest.fixture
def bucket(seaweed, data):
    data.put_credentials("store", seaweed.access_key, seaweed.secret_key)
    return Bucket(seaweed, f"models-{secrets.token_hex(4)}")


@pytest.fixture
def version(bucket):
    def make(prefix: str, **more):
        more.setdefault("endpoint", bucket.store.endpoint)
        return make_version(f"s3://{bucket.name}{prefix}", secret="store", **more)

    return make


def put(bucket, *keys: str) -> None:
    for key in keys:
        bucket.put(key, b"" if key.endswith("/") else f"bytes of {key}".encode())


def fetch(url: str, **headers: str) -> tuple[int, bytes, str | None]:
    request = urllib.request.Request(
        url, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read(), answer.headers["ETag"]
    except urllib.error.HTTPError as error:
        return error.code, b"", None


def paths(manifest) -> list[str]:
    return [file.path for file in manifest.files]


async def test_C01_directory_markers_are_no_files(bucket, version, sources):
    put(bucket, "m/", "m/config.json", "m/1_Pooling/", "m/1_Pooling/config.json")
    put(bucket, "m/model.safetensors")
    plain = await sources.resolve(version("/m"))
    assert paths(plain) == ["1_Pooling/config.json", "config.json", "model.safetensors"]
    assert plain.size_bytes == sum(len(f"bytes of m/{path}") for path in paths(plain))
    assert (await sources.resolve(version("/m/"))).digest == plain.digest


async def test_C01_markers_alone_are_no_model(bucket, version, sources):
    put(bucket, "m/", "m/empty/")
    with pytest.raises(SourceError, match="SourceNotFound"):
        await sources.resolve(version("/m"))


GOLDEN = {
    "": ["exp/model/MLmodel", "exp/model/model.pkl", "exp/model/model/extra.bin", "exp/model2/x"],
    "/exp/model": ["MLmodel", "model.pkl", "model/extra.bin"],
    "/exp/model/": ["MLmodel", "model.pkl", "model/extra.bin"],
    "/exp/model/model": ["extra.bin"],
    "/exp/model/model.pkl": ["model.pkl"],
    "/exp/model/model/extra.bin": ["extra.bin"],
}


@pytest.mark.parametrize("form", GOLDEN)
async def test_C02_the_tree_is_the_key_without_the_prefix(bucket, version, sources, form):
    put(bucket, "exp/model/model.pkl", "exp/model/MLmodel", "exp/model/model/extra.bin")
    put(bucket, "exp/model2/x")
    manifest = await sources.resolve(version(form))
    assert paths(manifest) == GOLDEN[form]
    page = await sources.sign(version(form), manifest.files)
    for file, signed in zip(manifest.files, page.files, strict=True):
        status, body, _ = fetch(signed.url)
        assert status == 200
        assert body.decode().endswith(f"/{file.path}") or form == ""


@pytest.mark.parametrize("number", [999, 1000, 1001, 2500])
async def test_C03_no_key_is_lost_at_a_page_boundary(bucket, version, sources, number):
    keys = [f"m/a{index:04}" for index in range(number - 2)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: bucket.put(key, b"x"), [*keys, "m/config.json"]))
    bucket.put("m/model.safetensors", b"weights")
    manifest = await sources.resolve(version("/m"))
    assert len(manifest.files) == number
    assert paths(manifest)[-1] == "model.safetensors"


async def test_C05_an_etag_of_parts_is_a_token_and_no_md5(bucket, version, sources):
    body = secrets.token_bytes(6 * 1024 * 1024)
    upload = bucket.client.create_multipart_upload(Bucket=bucket.name, Key="m/parts")
    where = {"Bucket": bucket.name, "Key": "m/parts", "UploadId": upload["UploadId"]}
    parts = []
    for number, piece in enumerate((body[: 5 * 1024 * 1024], body[5 * 1024 * 1024 :]), start=1):
        etag = bucket.client.upload_part(**where, PartNumber=number, Body=piece)["ETag"]
        parts.append({"PartNumber": number, "ETag": etag})
    bucket.client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    bucket.put("m/whole", body)
    manifest = await sources.resolve(version("/m"))
    by_path = {file.path: file.etag for file in manifest.files}
    assert by_path["parts"].endswith('-2"')
    assert by_path["parts"] != by_path["whole"]
    page = await sources.sign(version("/m"), manifest.files)
    for file, signed in zip(manifest.files, page.files, strict=True):
        assert fetch(signed.url, If_Match=file.etag)[0] == 200


async def test_C06_a_changed_object_is_refused_by_if_match_that_nobody_signed(
    bucket, version, sources
):
    put(bucket, "m/adapter.safetensors")
    first = await sources.resolve(version("/m"))
    bucket.put("m/adapter.safetensors", b"BYTES of m/adapter.safetensors")
    second = await sources.resolve(version("/m"))
    assert second.size_bytes == first.size_bytes
    assert second.digest != first.digest
    page = await sources.sign(version("/m"), first.files)
    url = page.files[0].url
    assert "If-Match" not in url
    assert fetch(url, If_Match=first.files[0].etag, Range="bytes=0-4")[0] == 412
    status, body, etag = fetch(url, If_Match=second.files[0].etag, Range="bytes=0-4")
    assert (status, body, etag) == (206, b"BYTES", second.files[0].etag)


async def test_C07_a_bucket_with_a_dot_and_a_slash_at_the_end(seaweed, data, sources):
    data.put_credentials("store", seaweed.access_key, seaweed.secret_key)
    dotted = Bucket(seaweed, f"my.{secrets.token_hex(4)}")
    put(dotted, "m/a")
    version = make_version(f"s3://{dotted.name}/m", endpoint=f"{seaweed.endpoint}/", secret="store")
    manifest = await sources.resolve(version)
    page = await sources.sign(version, manifest.files)
    assert fetch(page.files[0].url)[1] == b"bytes of m/a"


async def test_C21_a_version_id_outlives_a_delete_marker(bucket, version, sources):
    bucket.client.put_bucket_versioning(
        Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"}
    )
    put(bucket, "m/a", "m/b")
    manifest = await sources.resolve(version("/m"))
    assert all(file.version_id for file in manifest.files)
    bucket.delete("m/a")
    later = await sources.resolve(version("/m"))
    assert paths(later) == ["b"]
    page = await sources.sign(version("/m"), manifest.files)
    assert fetch(page.files[0].url)[1] == b"bytes of m/a"
    bucket.delete("m/b")
    with pytest.raises(SourceError, match="SourceNotFound"):
        await sources.resolve(version("/m"))


async def test_C27_include_and_exclude_choose_one_layout(bucket, version, sources):
    put(bucket, "m/config.json", "m/consolidated.safetensors", "m/original/consolidated.00.pth")
    put(bucket, "m/model-00001-of-00002.safetensors", "m/model-00002-of-00002.safetensors")
    put(bucket, "m/onnx/model.onnx")
    chosen = version("/m", include=["*.json", "model-*"], exclude=["onnx/**"])
    assert paths(await sources.resolve(chosen)) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    with pytest.raises(SourceError, match="none of the 6 objects"):
        await sources.resolve(version("/m", include=["*.gguf"]))


async def test_keys_with_unusual_characters_are_signed_right(bucket, version, sources):
    names = ["a b", "a+b", "a%20b", "é/ü", "q?x=1&y", "hash#1", "star*", "semi;colon", "=~'()!@$,"]
    put(bucket, *(f"m/{name}" for name in names))
    manifest = await sources.resolve(version("/m"))
    assert sorted(paths(manifest)) == sorted(names)
    page = await sources.sign(version("/m"), manifest.files)
    for file, signed in zip(manifest.files, page.files, strict=True):
        assert fetch(signed.url)[1].decode() == f"bytes of m/{file.path}"


async def test_anonymous_reads_need_no_secret_where_the_bucket_is_public(seaweed, sources):
    public = Bucket(seaweed, "public")
    put(public, "m/a")
    version = make_version("s3://public/m", endpoint=seaweed.endpoint)
    page = await sources.sign(version, (await sources.resolve(version)).files)
    assert "?" not in page.files[0].url
    assert fetch(page.files[0].url)[1] == b"bytes of m/a"


async def test_wrong_keys_and_missing_buckets_against_a_real_store(bucket, data, sources):
    where = {"endpoint": bucket.store.endpoint}
    data.put_credentials("wrong", bucket.store.access_key, "wrong")
    cases = {
        "AuthFailed": make_version(f"s3://{bucket.name}/m", secret="wrong", **where),
        "SourceNotFound": make_version("s3://no-such-bucket/m", secret="store", **where),
    }
    for reason, version in cases.items():
        with pytest.raises(SourceError, match=reason):
            await sources.resolve(version)


async def test_a_page_of_urls_is_signed_without_a_word_to_the_store(data, sources):
    data.put_credentials("keys", "AK", "secret")
    version = make_version("s3://models/m", endpoint="http://127.0.0.1:1", secret="keys")
    page = await sources.sign(version, [SourceFile(f"f{n}", 1, '"e"') for n in range(500)])
    assert [signed.path for signed in page.files] == [f"f{n}" for n in range(500)]
    assert all("X-Amz-Expires=900" in signed.url for signed in page.files)
    assert data.reads == 1
