from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from fakes.authority import MemoryAuthorityStore
from modelcache_operator.ports.authority import Authority, AuthorityDamagedError, KeyPair
from modelcache_operator.serving_certificate import ServingCertificate
from modelcache_operator.tls import is_due_for_renewal, issue_leaf, make_authority

HOSTS = ("modelcache-operator.modelcache-system.svc", "127.0.0.1", "::1")


@pytest.fixture
def now():
    return [datetime.now(UTC)]


async def handshake(context: ssl.SSLContext, authority: bytes, host: str) -> bytes:
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        trust = ssl.create_default_context(cadata=authority.decode())
        trust.verify_flags |= ssl.VERIFY_X509_STRICT
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trust, server_hostname=host
        )
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return der


@pytest.mark.parametrize("host", HOSTS)
async def test_strict_clients_trust_a_leaf_for_each_of_its_names(now, host):
    store = MemoryAuthorityStore()
    context = await ServingCertificate(store, HOSTS, now=lambda: now[0]).ensure()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert await handshake(context, store.bundle, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(context, store.bundle, "other.example")


async def test_the_first_replica_wins_and_the_others_take_its_authority(now):
    store = MemoryAuthorityStore()
    replicas = [ServingCertificate(store, HOSTS, now=lambda: now[0]) for _ in range(3)]
    contexts = await asyncio.gather(*(replica.ensure() for replica in replicas))
    assert store.bundles == {store.authority.current.certificate}
    for context in contexts:
        assert await handshake(context, store.authority.current.certificate, "127.0.0.1")


async def test_a_leaf_is_renewed_in_the_same_context(now):
    store = MemoryAuthorityStore()
    serving = ServingCertificate(store, HOSTS, now=lambda: now[0])
    context = await serving.ensure()
    first = await handshake(context, store.authority.current.certificate, "127.0.0.1")
    assert await serving.ensure() is context
    assert await handshake(context, store.authority.current.certificate, "127.0.0.1") == first
    now[0] += timedelta(days=5)
    assert await serving.ensure() is context
    renewed = await asyncio.to_thread(x509.load_pem_x509_certificate, serving._leaf.certificate)
    assert renewed.not_valid_after_utc > x509.load_der_x509_certificate(first).not_valid_after_utc


async def test_a_deleted_authority_is_replaced_while_running(now):
    store = MemoryAuthorityStore()
    serving = ServingCertificate(store, HOSTS, now=lambda: now[0])
    context = await serving.ensure()
    old, store.authority = store.authority.current, None
    await serving.ensure()
    assert store.authority is not None
    assert await handshake(context, store.authority.current.certificate, "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(context, old.certificate, "127.0.0.1")


@pytest.mark.parametrize("damage", ["certificate", "key", "mixed"])
async def test_a_damaged_authority_names_the_cure(now, damage):
    good, other = make_authority(now[0]), make_authority(now[0])
    store = MemoryAuthorityStore()
    store.authority = Authority(
        {
            "certificate": KeyPair(b"x", good.key),
            "key": KeyPair(good.certificate, b"x"),
            "mixed": KeyPair(good.certificate, other.key),
        }[damage]
    )
    with pytest.raises(AuthorityDamagedError, match="delete its Secret"):
        await ServingCertificate(store, HOSTS, now=lambda: now[0]).ensure()


def test_renewal_is_due_in_the_last_third(now):
    leaf = issue_leaf(make_authority(now[0]), HOSTS, now[0])
    assert not is_due_for_renewal(leaf.certificate, now[0] + timedelta(days=4))
    assert is_due_for_renewal(leaf.certificate, now[0] + timedelta(days=5))
    assert "PRIVATE" not in repr(leaf)
