"""TLS, redirects, headers: where bytes and credentials may go."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fakes.fault_proxy import Fault, FaultProxy
from fakes.fetch_world import Grants, make_job, plain_url, quick, random_body
from fakes.range_server import RangeServer, Served
from modelcache_agent.fetch import FetchEngine, address
from modelcache_api.manifest import SourceFile
from modelcache_api.names import Reason

BODY = random_body(9 << 20)
SOURCES = {"m.bin": SourceFile("m.bin", len(BODY), '"v1"')}


def make_ca_and_server(folder):
    """A private CA in PEM, and the path of a server's certificate and key."""
    now = dt.datetime.now(dt.UTC)

    def certificate(name, issuer, key, signer, *extensions):
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        return builder.sign(signer, hashes.SHA256())

    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = certificate("ca", "ca", ca_key, ca_key, x509.BasicConstraints(ca=True, path_length=0))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = certificate("server", "ca", key, ca_key, names)
    chain = folder / "server.pem"
    chain.write_bytes(
        server.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return ca.public_bytes(serialization.Encoding.PEM).decode(), chain


@pytest.fixture
def tls_server(server, tmp_path):
    ca, chain = make_ca_and_server(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server.wrap_tls(context)
    server.objects["m.bin"] = Served.of(BODY)
    return server, ca


async def fetch(url_of, directory, config=None, headers=None, **changes):
    grants = Grants(SOURCES, url_of)
    grants.headers = headers or {}
    async with FetchEngine(grants, config or quick()) as engine:
        return await engine.fetch(make_job(SOURCES, directory, **changes))


def https_url(server):
    return lambda path: server.url(path).replace("http:", "https:")


async def test_C11_private_ca_is_refused_without_and_trusted_with_its_bundle(tls_server, tmp_path):
    server, ca = tls_server
    outcome = await fetch(https_url(server), tmp_path / "p")
    assert outcome.failure.reason == Reason.TLS_FAILED
    assert "certificate" in outcome.failure.message
    outcome = await fetch(https_url(server), tmp_path / "p", ca_bundle=ca)
    assert outcome.failure is None
    assert outcome.files[0].sha256 == hashlib.sha256(BODY).hexdigest()


async def test_C11_bundle_of_another_ca_and_rubbish_are_tls_failures(tls_server, tmp_path):
    server, _ = tls_server
    other, _ = make_ca_and_server(tmp_path)
    for bundle in (other, "rubbish"):
        outcome = await fetch(https_url(server), tmp_path / "p", ca_bundle=bundle)
        assert outcome.failure.reason == Reason.TLS_FAILED


class RotatedGrants(Grants):
    """The authority was replaced: a new grant says so."""

    bundles = ("", "")

    async def current(self, uid, path):
        grant = await super().current(uid, path)
        return grant.model_copy(update={"ca_bundle": self.bundles[0]})

    async def refresh(self, uid, path):
        grant = await super().refresh(uid, path)
        return grant.model_copy(update={"ca_bundle": self.bundles[1]})


@pytest.mark.parametrize("old", ["another authority", "rubbish"])
async def test_C11_an_authority_that_was_replaced_costs_one_new_grant(tls_server, tmp_path, old):
    server, ca = tls_server
    other, _ = make_ca_and_server(tmp_path)
    grants = RotatedGrants(SOURCES, https_url(server))
    grants.bundles = (old if old == "rubbish" else other, ca)
    async with FetchEngine(grants, quick(streams=1)) as engine:
        outcome = await engine.fetch(make_job(SOURCES, tmp_path / "p"))
    assert outcome.failure is None
    assert grants.refreshed["m.bin"] == 1


async def test_certificate_for_another_name_is_refused(tls_server, tmp_path):
    server, ca = tls_server
    outcome = await fetch(
        lambda path: https_url(server)(path).replace("127.0.0.1", "localhost"),
        tmp_path / "p",
        ca_bundle=ca,
    )
    assert outcome.failure.reason == Reason.TLS_FAILED


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_to_another_origin_never_gets_the_grants_headers(
    server, proxy, tmp_path, status, monkeypatch
):
    monkeypatch.setattr(address, "find_danger", lambda _: None)  # both servers are on loopback
    server.objects["m.bin"] = Served.of(BODY)
    proxy.script("m.bin", Fault(status=status, set_headers={"Location": server.url("m.bin")}))
    headers = {"Authorization": "Bearer secret", "X-Custom": "secret", "Cookie": "secret"}
    outcome = await fetch(plain_url(proxy.endpoint), tmp_path / "p", headers=headers)
    assert outcome.failure is None
    assert proxy.served[0][1]["authorization"] == "Bearer secret"
    for _, received in server.requests:
        assert "secret" not in " ".join(received.values())
        assert received["if-match"] == '"v1"'
        assert received["range"].startswith("bytes=")


async def test_a_redirect_to_another_origin_keeps_the_guard_of_a_date(
    server, proxy, tmp_path, monkeypatch
):
    monkeypatch.setattr(address, "find_danger", lambda _: None)  # both servers are on loopback
    date = "Wed, 01 Jan 2020 00:00:00 GMT"
    server.objects["m.bin"] = Served.of(BODY)
    proxy.script("m.bin", Fault(status=302, set_headers={"Location": server.url("m.bin")}))
    dated = {"m.bin": SourceFile("m.bin", len(BODY), last_modified=date)}
    async with FetchEngine(Grants(dated, plain_url(proxy.endpoint)), quick()) as engine:
        outcome = await engine.fetch(make_job(dated, tmp_path / "p"))
    assert outcome.failure.reason == Reason.SOURCE_CHANGED, "the other server tells no date"
    assert {received["if-unmodified-since"] for _, received in server.requests} == {date}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
async def test_redirect_to_another_port_of_this_machine_is_refused(server, proxy, tmp_path, host):
    """The grant's own address is loopback, so the first request is fine; the second is not."""
    server.objects["m.bin"] = Served.of(BODY)
    elsewhere = f"http://{host}:{server.address[1]}/m.bin"
    proxy.script("m.bin", Fault(status=307, set_headers={"Location": elsewhere}))
    outcome = await fetch(plain_url(proxy.endpoint), tmp_path / "p")
    assert outcome.failure.reason == Reason.SOURCE_NOT_ALLOWED
    assert not server.requests


async def test_a_kept_connection_to_this_machine_is_not_lent_to_a_redirect(server, proxy, tmp_path):
    server.objects["m.bin"] = Served.of(BODY)
    elsewhere = {"Location": server.url("m.bin")}
    async with FetchEngine(Grants(SOURCES, server.url), quick(streams=1)) as engine:
        assert (await engine.fetch(make_job(SOURCES, tmp_path / "a"))).failure is None
        asked = len(server.requests)
        proxy.script("m.bin", Fault(status=307, set_headers=elsewhere))
        engine._grants.url_of = plain_url(proxy.endpoint)
        outcome = await engine.fetch(make_job(SOURCES, tmp_path / "b", uid="uid-2"))
        assert outcome.failure.reason == Reason.SOURCE_NOT_ALLOWED
        assert len(server.requests) == asked


async def test_a_name_that_dns_leads_to_this_machine_is_refused(server, tmp_path, monkeypatch):
    server.objects["m.bin"] = Served.of(BODY)
    resolve = lambda host, port, **_: [(2, 1, 6, "", ("127.0.0.1", port))]  # noqa: E731
    monkeypatch.setattr(address.socket, "getaddrinfo", resolve)
    outcome = await fetch(
        lambda path: f"http://public.example:{server.address[1]}/{path}", tmp_path / "p"
    )
    assert outcome.failure.reason == Reason.SOURCE_NOT_ALLOWED
    assert not server.requests


async def test_redirect_within_the_origin_keeps_the_headers(server, proxy, tmp_path):
    server.objects["m.bin"] = Served.of(BODY)
    proxy.script("m.bin", Fault(status=307, set_headers={"Location": "/m.bin?again"}), times=1)
    await fetch(plain_url(proxy.endpoint), tmp_path / "p", headers={"Authorization": "Bearer x"})
    assert [headers["authorization"] for _, headers in proxy.served] == ["Bearer x"] * 2


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        pytest.param("http://169.254.169.254/latest/", Reason.SOURCE_NOT_ALLOWED, id="metadata"),
        pytest.param("http://[fe80::1]/", Reason.SOURCE_NOT_ALLOWED, id="link-local"),
        pytest.param("http://[::ffff:a9fe:a9fe]/", Reason.SOURCE_NOT_ALLOWED, id="mapped"),
        pytest.param("/m.bin", Reason.SOURCE_ERROR, id="a loop"),
        pytest.param("file:///etc/passwd", Reason.SOURCE_ERROR, id="a file"),
        pytest.param("http://[", Reason.SOURCE_ERROR, id="rubbish"),
        pytest.param("http://a b/", Reason.ENDPOINT_UNREACHABLE, id="a host with a space"),
    ],
)
async def test_redirects_that_are_not_followed(proxy, tmp_path, location, reason):
    proxy.script("m.bin", Fault(status=302, set_headers={"Location": location}))
    outcome = await fetch(plain_url(proxy.endpoint), tmp_path / "p", quick(file_attempts=1))
    assert outcome.failure.reason == reason
    assert proxy.gets["m.bin"] <= 6


async def test_redirect_from_https_to_http_is_refused(tls_server, tmp_path):
    server, ca = tls_server
    with RangeServer({"m.bin": Served.of(BODY)}) as plain:
        server.redirect_to = plain.url("m.bin")
        outcome = await fetch(https_url(server), tmp_path / "p", ca_bundle=ca)
        assert outcome.failure.reason == Reason.SOURCE_NOT_ALLOWED
        assert not plain.requests


async def test_C20_page_with_status_200_in_place_of_weights(proxy, tmp_path):
    page = b"<!DOCTYPE html><html><body>Sign in</body></html>"
    proxy.script("m.bin", Fault(status=200, body=page))
    outcome = await fetch(plain_url(proxy.endpoint), tmp_path / "p")
    assert outcome.failure.reason == Reason.NOT_A_MODEL
    assert "HTML" in outcome.failure.message
    assert proxy.gets["m.bin"] == 1


async def test_connection_that_the_server_closed_meanwhile_costs_no_retry(tmp_path):
    """Kept connections die silently; the next request opens a new one without a failure."""
    with RangeServer({"m.bin": Served.of(BODY)}) as server, FaultProxy(server.address) as proxy:
        grants = Grants(SOURCES, plain_url(proxy.endpoint))
        async with FetchEngine(grants, quick(streams=1)) as engine:
            await engine.fetch(make_job(SOURCES, tmp_path / "p", uid="one"))
            proxy.drop_connections()
            outcome = await engine.fetch(make_job(SOURCES, tmp_path / "q", uid="two"))
            assert outcome.failure is None
            assert engine.counters().retries == {}
            assert engine.counters().connections == 2
