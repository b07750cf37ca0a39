"""What another node can do wrong: the file stays right, and costs no attempt of its own.

Each fault has one answer in the book, and the node is left alone after it.
"""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta

import pytest

from fakes.fault_proxy import Fault
from fakes.peer_world import BODY, PATH, FetchPair, PeerWorld
from fakes.range_server import RangeServer
from fakes.safetensors_kit import PAGE, XML_ERROR
from modelcache_agent.decide.transfer_plan import StallPolicy
from modelcache_agent.fetch import connection, stream
from modelcache_agent.fetch.partial import PartialFile
from modelcache_api.manifest import PIECE_BYTES
from modelcache_api.names import Reason
from modelcache_api.wire import PeerGrant
from modelcache_operator.ports.authority import Authority
from modelcache_operator.tls import make_authority

CUT = PIECE_BYTES + 1000
# Every stream may have asked before the first answer of the node was known.
MOST_REQUESTS = 8


@pytest.fixture
def peers():
    return PeerWorld()


@pytest.fixture
def world(server, tmp_path):
    return FetchPair(server, tmp_path)


@pytest.fixture
def patience(answer, monkeypatch):
    """With a node that is slow, 1.5 seconds in place of five."""
    if answer == "slow":
        policy = StallPolicy(window_seconds=1.5, min_bytes_per_second=256 * 1024)
        monkeypatch.setattr(stream, "PEER_STALL", policy)
        monkeypatch.setattr(connection, "PEER_STALL", policy)


LATER = {"Retry-After": "3600"}


FAULTS = [
    pytest.param(Fault(close_after=CUT), "broken", id="C04 hangs up in the middle"),
    pytest.param(Fault(close_after=CUT, framing="chunked"), "broken", id="C04 chunked, cut"),
    pytest.param(Fault(close_after=CUT, framing="none"), "broken", id="C04 no length, cut"),
    pytest.param(
        Fault(close_after=CUT, content_length=CUT), "broken", id="C04 announces the short length"
    ),
    pytest.param(Fault(close_after=0), "broken", id="C04 nothing behind the head"),
    pytest.param(Fault(append=b"more"), "broken", id="C04 sends more than was asked for"),
    pytest.param(
        Fault(set_headers={"Content-Range": f"bytes 0-{len(BODY) - 1}/{len(BODY) + 1}"}),
        "broken",
        id="C06 has another size",
    ),
    pytest.param(
        Fault(set_headers={"Content-Range": f"bytes 8-{len(BODY) - 1}/{len(BODY)}"}),
        "broken",
        id="C06 sends another range",
    ),
    pytest.param(Fault(flip_at=CUT), "wrong", id="C06 wrong bytes of the right length"),
    pytest.param(Fault(status=412), "broken", id="C12 412"),
    pytest.param(Fault(status=416), "broken", id="C12 416"),
    pytest.param(Fault(status=200, body=PAGE), "broken", id="C20 a page in place of weights"),
    pytest.param(Fault(status=200, body=XML_ERROR), "broken", id="C20 an XML error"),
    pytest.param(Fault(status=404), "missing", id="C21 404"),
    pytest.param(Fault(status=410), "broken", id="C21 410"),
    pytest.param(Fault(status=401), "refused", id="C09 401"),
    pytest.param(Fault(status=403), "refused", id="C09 403"),
    pytest.param(Fault(status=500), "broken", id="500"),
    pytest.param(Fault(status=503, set_headers=LATER), "busy", id="503 for an hour"),
    pytest.param(Fault(status=429, set_headers=LATER), "broken", id="429 for an hour"),
    pytest.param(Fault(status=204), "broken", id="204"),
    pytest.param(Fault(stall_after=CUT), "slow", id="falls silent"),
    pytest.param(Fault(trickle=(1, 0.02)), "slow", id="trickles"),
    pytest.param(Fault(delay=10.0), "slow", id="never answers"),
]


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize(("fault", "answer"), FAULTS)
async def test_what_a_node_does_wrong_is_made_up_for_by_the_source(peers, world, fault, answer):
    with peers.faulty_node("node-f", BODY) as (holder, node):
        node.script(PATH, fault)
        book, counters = await world.fetch(peers, holder, reads_source=True)
        assert 1 <= sum(node.gets.values()) <= MOST_REQUESTS
    assert set(+book.answers) - {"served"} == {answer}
    assert book.suspects == (("node-f",) if answer == "wrong" else ())
    assert counters.retries == {}, "it costs the file no attempt"
    assert world.source_requests >= 1


ONE_OF_EACH = {param.values[1]: param for param in reversed(FAULTS)}.values()


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize(("fault", "answer"), ONE_OF_EACH)
async def test_what_a_node_does_wrong_is_made_up_for_by_the_next(peers, world, fault, answer):
    with (
        peers.faulty_node("node-f", BODY) as (near, node),
        peers.node("node-h", world.shelf("honest", BODY)) as honest,
    ):
        node.script(PATH, fault)
        far = honest.model_copy(update={"distance": 1})
        # Who is refused asks for another ticket first, and gets the same nodes with it.
        anew = PeerGrant(ticket=peers.ticket(world.job.source_digest), holders=(near, far))
        book, counters = await world.fetch(peers, near, far, renewed=anew)
        assert sum(node.gets.values()) <= MOST_REQUESTS
    assert book.answers[answer] >= 1
    assert counters.retries == {}
    assert world.source_requests == 0
    assert counters.refetched_bytes <= MOST_REQUESTS * PIECE_BYTES


async def test_C04_a_node_that_sends_the_whole_file_for_a_part_is_not_believed(peers, world):
    with peers.faulty_node("node-f", BODY) as (holder, node):
        node.script(PATH, Fault(drop_request_headers=frozenset({"range"})))
        book, counters = await world.fetch(peers, holder, reads_source=True, part_pieces=1)
        assert sum(node.gets.values()) <= MOST_REQUESTS
    assert set(+book.answers) == {"broken"}
    assert counters.peer_bytes == 0


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_node_sends_nobody_elsewhere(peers, world, status):
    with RangeServer() as elsewhere, peers.faulty_node("node-f", BODY) as (holder, node):
        node.script(PATH, Fault(status=status, set_headers={"Location": elsewhere.url(PATH)}))
        book, _ = await world.fetch(peers, holder, reads_source=True)
        assert elsewhere.requests == []
    assert set(+book.answers) == {"broken"}


async def test_C12_what_was_read_before_a_node_broke_is_kept(peers, world):
    with peers.faulty_node("node-f", BODY) as (holder, node):
        node.script(PATH, Fault(close_after=2 * PIECE_BYTES + 1000))
        _, counters = await world.fetch(peers, holder, reads_source=True)
    read = sum(_length(headers["range"]) for _, headers in world.server.requests)
    assert read == len(BODY) - 2 * PIECE_BYTES, "the source is asked for the rest alone"
    assert counters.peer_bytes >= 2 * PIECE_BYTES


def _length(span: str) -> int:
    first, last = span.removeprefix("bytes=").split("-")
    return int(last) + 1 - int(first)


async def test_C21_a_copy_that_is_cut_while_it_is_read_is_left(peers, world):
    """Files of a store are unlinked, never cut; a cut one is a broken disk."""
    shelf = world.shelf("a", BODY)
    find = shelf.find

    def find_and_cut(*asked):
        offer = find(*asked)
        if offer is not None:
            offer.location.write_bytes(BODY[:CUT])
        return offer

    shelf.find = find_and_cut
    with peers.node("node-a", shelf) as holder:
        book, counters = await world.fetch(peers, holder, reads_source=True)
    assert book.answers["broken"] >= 1
    assert counters.retries == {}


async def test_C13_a_zero_filled_copy_of_the_right_length_is_found(peers, world):
    damaged = BODY[: len(BODY) // 2] + bytes(len(BODY) - len(BODY) // 2)
    with peers.node("node-a", world.shelf("a", damaged)) as holder:
        book, counters = await world.fetch(peers, holder, reads_source=True)
    assert book.suspects == ("node-a",)
    assert counters.peer_bytes > 0


async def test_C09_a_ticket_that_ran_out_costs_one_question_a_stream(peers, world):
    ticket = peers.ticket(world.job.source_digest, seconds=-1)
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        book, counters = await world.fetch(peers, holder, ticket=ticket)
    assert set(+book.answers) == {"refused"}
    assert 1 <= book.answers["refused"] <= MOST_REQUESTS
    assert (counters.peer_bytes, counters.retries) == (0, {})


@pytest.mark.parametrize("minutes", [-20, 20])
async def test_C10_clocks_that_are_off_by_twenty_minutes_change_nothing(peers, world, minutes):
    """The serving node's, for tickets; and the operator's, for certificates."""
    off = timedelta(minutes=minutes)
    own = peers.credentials("node-a", fast_by=off)
    shelf = world.shelf("a", BODY)
    with peers.node("node-a", shelf, credentials=own, fast_by=off.total_seconds() / 3) as holder:
        book, _ = await world.fetch(peers, holder)
    assert set(+book.answers) == {"served"}
    assert world.source_requests == 0


@pytest.mark.parametrize(
    ("fast_by", "says"),
    [
        pytest.param(timedelta(hours=2), "not yet valid", id="not yet valid"),
        pytest.param(timedelta(hours=-2), "expired", id="run out"),
    ],
)
async def test_C10_a_certificate_out_of_its_time_is_named_and_the_source_read(
    peers, world, caplog, fast_by, says
):
    own = peers.credentials("node-a", fast_by=fast_by)
    with peers.node("node-a", world.shelf("a", BODY), credentials=own) as holder:
        book, counters = await world.fetch(peers, holder)
    assert set(+book.answers) == {"gone"}
    assert counters.peer_bytes == 0
    assert says in caplog.text
    assert "node-a" in caplog.text


async def test_C11_a_certificate_of_another_authority_is_refused(peers, world, caplog):
    stranger = PeerWorld().credentials("node-a")
    with peers.node("node-a", world.shelf("a", BODY), credentials=stranger) as holder:
        book, counters = await world.fetch(peers, holder)
    assert set(+book.answers) == {"gone"}
    assert counters.peer_bytes == 0
    assert "certificate not accepted" in caplog.text


HOSTILE = ["a b", "a+b", "a%20b", "é/ü", "q?x=1&y", "hash#1", "semi;colon", "=~'()!@$,", "\u202ex"]


async def test_names_that_urls_must_quote_and_empty_files(peers, server, tmp_path):
    bodies = {name: f"bytes of {name}".encode() for name in HOSTILE} | {"empty": b""}
    world = FetchPair(server, tmp_path, bodies)
    shelf = world.shelf("a")
    with peers.node("node-a", shelf) as holder:
        book, counters = await world.fetch(peers, holder)
    assert counters.peer_bytes == sum(map(len, bodies.values()))
    assert +book.answers == {"served": len(HOSTILE)}
    assert {path for path, _ in shelf.asked} == set(HOSTILE), "an empty file is asked of nobody"
    assert world.source_requests == 0


async def test_C11_a_rotated_authority_is_trusted_without_a_restart(peers, world):
    own = peers.credentials("node-a")
    with peers.node("node-a", world.shelf("a", BODY), credentials=own) as holder:
        peers.authority = Authority(
            make_authority(datetime.now(UTC)), previous=peers.authority.current.certificate
        )
        own.use(peers.signer().certify("node-a", own.public_key))
        book, _ = await world.fetch(peers, holder)
    assert set(+book.answers) == {"served"}
    assert world.source_requests == 0


async def test_C16_a_disk_that_is_full_here_is_not_the_nodes_fault(peers, world, monkeypatch):
    def write(_file, _piece, _buffer):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PartialFile, "write", write)
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        outcome, book, _ = await world.try_to_fetch(peers, holder)
    assert outcome.failure.reason == Reason.INSUFFICIENT_SPACE
    assert set(+book.answers) <= {"busy", "served"}
    assert book.avoided("uid-1") == book.suspects == ()
