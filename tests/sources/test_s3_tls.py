"""Stores behind a private certificate authority."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.s3_stub import S3Stub, listing, script_listing
from fakes.source_world import make_version
from fakes.tls_world import PrivateAuthority
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.tls import use_leaf

SCRIPT = script_listing(listing(["m/a"]))


@pytest.fixture
def authority():
    return PrivateAuthority()


@pytest.fixture
def stub(authority):
    with S3Stub(SCRIPT, tls=authority.context()) as own:
        yield own


async def test_C11_without_a_bundle_the_reason_is_tls(stub, sources):
    version = make_version("s3://models/m", endpoint=stub.endpoint)
    with pytest.raises(SourceError) as caught:
        await sources.resolve(version)
    assert caught.value.reason == "TLSFailed"
    assert "self-signed certificate in certificate chain" in caught.value.message or (
        "unable to get local issuer certificate" in caught.value.message
    )
    assert "caBundleRef" in caught.value.message
    assert not stub.requests


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
async def test_C11_a_bundle_is_trusted_and_handed_on(stub, authority, data, sources, kind):
    data.put_config_map("bundle", {"ca.crt": authority.pem})
    data.put_secret("bundle", **{"ca.crt": authority.pem.decode()})
    version = make_version("s3://models/m", endpoint=stub.endpoint, bundle="bundle")
    ref = version.spec.source.ca_bundle_ref.model_copy(update={"kind": kind})
    source = version.spec.source.model_copy(update={"ca_bundle_ref": ref})
    version = make_version_with(version, source)
    manifest = await sources.resolve(version)
    page = await sources.sign(version, manifest.files)
    assert page.ca_bundle == authority.pem.decode()


async def test_C11_a_rotated_bundle_works_without_a_restart(stub, authority, data, sources):
    version = make_version("s3://models/m", endpoint=stub.endpoint, bundle="bundle")
    data.put_config_map("bundle", {"ca.crt": authority.pem})
    await sources.resolve(version)
    successor = PrivateAuthority()
    use_leaf(stub.tls, successor.leaf())
    data.put_config_map("bundle", {"ca.crt": authority.pem + successor.pem})
    await sources.resolve(version)
    data.put_config_map("bundle", {"ca.crt": successor.pem})
    await sources.resolve(version)
    data.put_config_map("bundle", {"ca.crt": authority.pem})
    with pytest.raises(SourceError, match="TLSFailed"):
        await sources.resolve(version)


async def test_C11_a_certificate_for_another_host_is_refused(authority, data, sources):
    data.put_config_map("bundle", {"ca.crt": authority.pem})
    with S3Stub(SCRIPT, tls=authority.context("other.example")) as stub:
        version = make_version("s3://models/m", endpoint=stub.endpoint, bundle="bundle")
        with pytest.raises(SourceError) as caught:
            await sources.resolve(version)
    assert caught.value.reason == "TLSFailed"
    assert "mismatch" in caught.value.message


@pytest.mark.parametrize(
    ("bundle", "says"),
    [
        pytest.param({}, "does not exist", id="no such key"),
        pytest.param({"ca.crt": b"not PEM"}, "no readable PEM", id="no PEM"),
        pytest.param({"ca.crt": b""}, "no readable PEM", id="empty"),
        pytest.param(None, "there is no ConfigMap", id="no such object"),
    ],
)
async def test_C11_an_unusable_bundle_is_named(stub, data, sources, bundle, says):
    if bundle is not None:
        data.put_config_map("bundle", bundle)
    version = make_version("s3://models/m", endpoint=stub.endpoint, bundle="bundle")
    with pytest.raises(SourceError) as caught:
        await sources.resolve(version)
    assert caught.value.reason == "CABundleInvalid"
    assert says in caught.value.message


async def test_only_certificates_of_a_bundle_leave_the_operator(stub, authority, data, sources):
    data.put_config_map("bundle", {"ca.crt": authority.pem + authority.pair.key})
    version = make_version("s3://models/m", endpoint=stub.endpoint, bundle="bundle")
    page = await sources.sign(version, ())
    assert page.ca_bundle is not None
    assert "PRIVATE" not in page.ca_bundle


async def test_a_plain_server_at_an_https_address_is_a_tls_failure(sources):
    with S3Stub(SCRIPT) as stub:
        endpoint = stub.endpoint.replace("http:", "https:")
        with pytest.raises(SourceError) as caught:
            await sources.resolve(make_version("s3://models/m", endpoint=endpoint))
    assert caught.value.reason == "TLSFailed"
    assert "does not speak TLS" in caught.value.message


def make_version_with(version, source):
    return replace(version, spec=version.spec.model_copy(update={"source": source}))
