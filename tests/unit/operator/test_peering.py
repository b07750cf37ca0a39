"""Grants that name other nodes, certificates, and the signatures of both."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fakes.seen_world import SeenWorld
from modelcache_agent.peers.credentials import PeerCredentials as AgentCredentials
from modelcache_agent.peers.credentials import TicketError
from modelcache_api.names import EntryState
from modelcache_api.peers import make_peer_name
from modelcache_api.v1alpha1.cache_node import CacheNodeStatus, EntrySpec, EntryStatus, PeerStatus
from modelcache_api.wire import PeerQuery
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.world import NodeName, Uid
from modelcache_operator.peer_credentials import NoAuthorityError, PeerCredentials
from modelcache_operator.peering import Peering
from modelcache_operator.ports.authority import Authority
from modelcache_operator.tls import make_authority

NOW = datetime.now(UTC)
ENTRY = EntrySpec(uid="v1", source_digest="sha256:" + "a" * 64, size_bytes=9)
CONTENT = "sha256:" + "c" * 64


class Bench:
    """Nodes n1 to n3 with one entry, and an operator whose clock and leadership a test sets."""

    def __init__(self):
        self.world = SeenWorld()
        for name in ("n1", "n2", "n3"):
            self.world.add_node(name, f"uid-{name}", [ENTRY])
        self.seconds = 0.0
        self.leads = True
        self.authority = Authority(make_authority(NOW))
        self.credentials = PeerCredentials(
            lambda: self.authority, life=timedelta(hours=1), now=lambda: NOW
        )
        self.restart()

    def restart(self):
        self.peering = Peering(
            self.world,
            self.credentials,
            may_claim=lambda: self.leads,
            now=NOW.timestamp,
            clock=lambda: self.seconds,
        )

    def report(self, name, state, content=None):
        self.world.cache_nodes[name] = replace(
            self.world.cache_nodes[name],
            status=CacheNodeStatus(
                peer=PeerStatus(address="10.0.0.9", port=9405),
                entries=(EntryStatus(uid="v1", state=state, content_digest=content),),
            ),
        )

    def ask(self, name, *, content=None, avoid=(), waited=0.0):
        caller = Caller(NodeName(name), Uid(f"uid-{name}"), "pod", "pod-uid")
        query = PeerQuery(avoid=avoid, waited_seconds=waited)
        grant = self.peering.grant(caller, ENTRY, query, content)
        return grant.reads_source, [holder.node_uid for holder in grant.holders]


@pytest.fixture
def bench():
    return Bench()


def test_the_first_to_ask_reads_and_the_others_are_told_whom_to_wait_for(bench):
    assert bench.ask("n1") == (True, [])
    assert bench.ask("n2") == (False, []), "it has not said yet where it can be reached"
    bench.report("n1", EntryState.DOWNLOADING)
    assert bench.ask("n2") == (False, ["uid-n1"])
    assert bench.ask("n1") == (True, []), "asked again, it goes on reading"


def test_once_adopted_the_bytes_come_from_those_that_hold_them(bench):
    bench.ask("n1")
    bench.report("n1", EntryState.CACHED, CONTENT)
    bench.report("n3", EntryState.DOWNLOADING)
    reads, holders = bench.ask("n2", content=CONTENT)
    assert not reads
    assert sorted(holders) == ["uid-n1", "uid-n3"]


def test_if_the_reader_falls_silent_all_others_agree_on_one_successor(bench):
    bench.ask("n1")
    bench.report("n1", EntryState.DOWNLOADING)
    bench.report("n2", EntryState.PENDING)
    bench.report("n3", EntryState.PENDING)
    assert bench.ask("n2", avoid=["uid-n1"]) == (True, [])
    assert bench.ask("n3", avoid=["uid-n1"]) == (False, ["uid-n2"])
    assert bench.ask("n1") == (False, ["uid-n2"]), "back, it reads from its successor"


def test_a_new_leader_goes_by_what_the_nodes_report(bench):
    bench.ask("n1")
    bench.report("n1", EntryState.DOWNLOADING)
    bench.restart()
    assert bench.ask("n2") == (False, ["uid-n1"])


def test_a_replica_that_does_not_lead_lets_nobody_read_until_it_is_clear_that_nobody_leads(bench):
    bench.leads = False
    assert bench.ask("n1") == (False, [])
    bench.report("n2", EntryState.DOWNLOADING)
    assert bench.ask("n1", content=CONTENT) == (False, []), "of a known content as well"
    bench.report("n2", EntryState.PENDING)
    assert bench.ask("n1", waited=11) == (True, [])


def test_without_an_authority_nothing_is_said_of_others(bench):
    bench.authority = None
    caller = Caller(NodeName("n1"), Uid("uid-n1"), "pod", "pod-uid")
    assert bench.peering.grant(caller, ENTRY, PeerQuery(), None) is None
    with pytest.raises(NoAuthorityError):
        bench.credentials.certify("uid-n1", "")


def public_pem(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def test_a_certificate_names_the_node_that_asked_and_lives_for_the_overlap(bench):
    answer = bench.credentials.certify(
        "uid-n1", public_pem(ec.generate_private_key(ec.SECP256R1()))
    )
    certificate = x509.load_pem_x509_certificate(answer.certificate.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [make_peer_name("uid-n1")]
    assert answer.valid_seconds == 3600
    assert certificate.not_valid_after_utc <= NOW + timedelta(hours=1)
    with pytest.raises(ValueError, match="not a Node's UID"):
        bench.credentials.certify("*.node", public_pem(ec.generate_private_key(ec.SECP256R1())))


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("", id="none"),
        pytest.param("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", id="damaged"),
        pytest.param(public_pem(ec.generate_private_key(ec.SECP384R1())), id="another curve"),
        pytest.param(
            public_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)), id="RSA"
        ),
    ],
)
def test_other_keys_are_refused(bench, key):
    with pytest.raises(ValueError):  # noqa: PT011 - the library's own words
        bench.credentials.certify("uid-n1", key)


def test_a_ticket_is_good_across_the_rotation_of_the_authority(bench):
    """Signed by the next authority, read by an agent that renewed before the switch."""
    following = make_authority(NOW)
    bench.authority = replace(bench.authority, following=following)
    reader = AgentCredentials()
    reader.use(bench.credentials.certify("uid-n2", reader.public_key))
    before = bench.authority.current
    bench.authority = Authority(following, previous=before.certificate)
    caller = Caller(NodeName("n1"), Uid("uid-n1"), "pod", "pod-uid")
    ticket = bench.peering.grant(caller, ENTRY, PeerQuery(), None).ticket
    shown = {"subjectAltName": (("DNS", make_peer_name("uid-n1")),)}
    reader.check_ticket(ticket, shown, "v1", ENTRY.source_digest, time.time())
    bench.authority = Authority(make_authority(NOW))
    stranger = bench.peering.grant(caller, ENTRY, PeerQuery(), None).ticket
    with pytest.raises(TicketError, match="not signed"):
        reader.check_ticket(stranger, shown, "v1", ENTRY.source_digest, time.time())
