"""Reading from other nodes: right, slow, gone, lying, and those that may not."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import time
from urllib.parse import urlsplit

import pytest

from fakes.fault_proxy import Fault
from fakes.fetch_world import Grants, make_job, plain_url, quick, until
from fakes.peer_world import BODY, PATH, UID, US, FetchPair, FolderShelf, PeerGrants, PeerWorld
from fakes.store_world import opened, put_partials
from modelcache_agent.decide.world import Origin
from modelcache_agent.fetch import FetchEngine
from modelcache_agent.fetch.routes import Answer, PeerRoute, SourceRoute
from modelcache_agent.peers.shelf import Shelf
from modelcache_api.manifest import PIECE_BYTES, make_content_manifest
from modelcache_api.peers import make_peer_name
from modelcache_api.wire import PeerGrant


@pytest.fixture
def peers():
    return PeerWorld()


@pytest.fixture
def world(server, tmp_path):
    return FetchPair(server, tmp_path)


async def test_a_holder_serves_all_and_the_source_is_not_asked(peers, world):
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        book, counters = await world.fetch(peers, holder)
    assert world.source_requests == 0
    assert counters.peer_bytes == len(BODY)
    assert set(+book.answers) == {"served"}
    assert book.suspects == ()


async def test_a_real_store_serves_what_it_has_published_and_adopted(peers, world):
    manifest = make_content_manifest(world.content.values())
    origin = Origin(UID, world.job.source_digest, adopted=True)
    with opened(world.folder / "store") as store:
        finished = put_partials(store.layout.root, UID, {PATH: BODY})
        store.publish(manifest, finished, origin)
        shelf = Shelf(store, FetchEngine(None))
        with peers.node("node-a", shelf) as holder:
            _, counters = await world.fetch(peers, holder)
        assert shelf.verified_bytes(UID, world.job.source_digest) == len(BODY)
        assert shelf.find("uid-2", world.job.source_digest, PATH, 0, 10) is None
        assert shelf.find(UID, world.job.source_digest, "../lock", 0, 10) is None
    assert (world.source_requests, counters.peer_bytes) == (0, len(BODY))


async def test_a_lying_node_is_found_excluded_and_named_and_no_wrong_byte_stays(peers, world):
    lie = bytearray(BODY)
    lie[PIECE_BYTES + 5] ^= 1
    liar, honest = world.shelf("liar", bytes(lie)), world.shelf("honest", BODY)
    with peers.node("node-l", liar) as first, peers.node("node-h", honest) as second:
        far = second.model_copy(update={"distance": 1})
        book, _ = await world.fetch(peers, first, far)
        assert book.answers["wrong"] >= 1
        asked = len(liar.asked)
        assert book.avoided(UID) == ("node-l",)
        assert book.suspects == ("node-l",)
        grant = PeerGrants(world.sources, world.server.url, book)
        grant.offer(world.job.source_digest, "t", first)
        assert not isinstance(book.choose(UID, PATH), PeerRoute)
    assert len(liar.asked) == asked
    assert world.source_requests == 0


async def test_without_another_holder_the_source_makes_up_for_a_liar(peers, world):
    with peers.node("node-l", world.shelf("liar", bytes(len(BODY)))) as liar:
        book, counters = await world.fetch(peers, liar)
    assert book.suspects == ("node-l",)
    assert world.source_requests >= 1
    assert counters.retries == {}, "it cost the file no attempt"


async def test_C21_a_node_that_is_gone_is_left_at_once(peers, world):
    with peers.node("node-a", world.shelf("a", BODY)) as gone:
        pass
    began = time.monotonic()
    book, _ = await world.fetch(peers, gone)
    assert time.monotonic() - began < 5
    assert set(+book.answers) == {"gone"}
    assert world.source_requests >= 1


async def test_a_ticket_that_is_refused_is_renewed_and_nobody_is_left_alone_for_it(peers, world):
    """The authority that signed it may have been retired since."""
    digest = world.job.source_digest
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        new = PeerGrant(ticket=peers.ticket(digest), holders=(holder,), reads_source=False)
        old = PeerWorld().ticket(digest)
        book, counters = await world.fetch(peers, holder, ticket=old, renewed=new)
    assert (+book.answers).keys() == {"refused", "served"}
    assert book.avoided(UID) == ()
    assert (world.source_requests, counters.peer_bytes) == (0, len(BODY))


async def test_a_node_that_refuses_the_new_ticket_as_well_is_left_for_the_source(peers, world):
    digest, strange = world.job.source_digest, PeerWorld()
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        new = PeerGrant(ticket=strange.ticket(digest), holders=(holder,), reads_source=True)
        book, _ = await world.fetch(peers, holder, ticket=strange.ticket(digest), renewed=new)
    assert (+book.answers).keys() == {"refused"}
    assert book.avoided(UID) == ("node-a",)
    assert world.source_requests >= 1


async def test_a_ticket_is_renewed_once_however_many_streams_it_fails(peers, world):
    digest = world.job.source_digest
    with peers.node("node-a", FolderShelf(None)) as holder:
        book = peers.book()
        book.learn(UID, digest, PeerGrant(ticket="old", holders=(holder,), reads_source=False))
        routes = [book.choose(UID, PATH) for _ in range(3)]
        for route in routes:
            book.report(UID, route, Answer.REFUSED)
        assert book.choose(UID, PATH).must_renew
        book.learn(UID, digest, PeerGrant(ticket="new", holders=(holder,), reads_source=False))
        again = book.choose(UID, PATH)
        assert again.headers["ModelCache-Ticket"] == "new"
        book.report(UID, again, Answer.SERVED)
        book.report(UID, book.choose(UID, PATH), Answer.REFUSED)
        assert book.choose(UID, PATH).must_renew, "it has run out in its turn"
        book.allow_source(UID)
        book.report(UID, book.choose(UID, PATH), Answer.REFUSED)
        assert book.avoided(UID) == ("node-a",), "the operator has no newer one"
        assert isinstance(book.choose(UID, PATH), SourceRoute)


@pytest.mark.slow
async def test_a_slow_node_is_left_for_the_source(peers, world):
    with peers.node("node-a", world.shelf("a", BODY), rate=100_000) as slow:
        began = time.monotonic()
        book, _ = await world.fetch(peers, slow)
        assert time.monotonic() - began < 15
    assert book.answers["slow"] >= 1
    assert world.source_requests >= 1


async def test_a_node_that_lacks_it_and_one_that_is_busy_are_passed_over(peers, world):
    lacking = FolderShelf(world.folder / "nothing")
    with (
        peers.node("node-l", lacking) as first,
        peers.node("node-a", world.shelf("a", BODY), slots=1) as second,
    ):
        far = second.model_copy(update={"distance": 1})
        book, counters = await world.fetch(peers, first, far)
    assert book.answers["missing"] >= 1
    assert (world.source_requests, counters.peer_bytes) == (0, len(BODY))


async def test_C11_another_node_s_certificate_is_not_taken_for_the_holder_s(peers, world):
    stranger = peers.credentials("node-x")
    with peers.node("node-a", world.shelf("a", bytes(len(BODY))), credentials=stranger) as holder:
        book, counters = await world.fetch(peers, holder)
    assert set(+book.answers) == {"gone"}
    assert counters.peer_bytes == 0


async def test_a_node_serves_its_verified_pieces_while_it_still_fetches(peers, world, proxy):
    """The first node's own source is stopped in the middle; the second reads from it meanwhile."""
    job = make_job(world.sources, world.folder / "first", expected=world.content)
    proxy.script(PATH, Fault(stall_after=PIECE_BYTES + 100))
    grants = Grants(world.sources, plain_url(proxy.endpoint))
    async with FetchEngine(grants, quick(streams=1, file_attempts=1000)) as first:
        task = asyncio.create_task(first.fetch(job))
        await until(lambda: (first.verified_bytes(UID) or 0) >= PIECE_BYTES)
        with opened(world.folder / "store") as store:
            shelf = Shelf(store, first)
            offer = shelf.find(UID, job.source_digest, PATH, 0, 3 * PIECE_BYTES)
            assert (offer.start, offer.end % PIECE_BYTES) == (0, 0)
            assert shelf.find(UID, "sha256:" + "0" * 64, PATH, 0, 10) is None
            with peers.node("node-a", shelf) as holder:
                _, counters = await world.fetch(peers, holder, reads_source=True)
        assert counters.peer_bytes >= PIECE_BYTES
        await first.cancel(UID)
        await asyncio.gather(task, return_exceptions=True)


class Caller:
    """Asks a serving node by hand."""

    def __init__(self, holder, credentials):
        self.holder = holder
        self.context = credentials.client_context()

    def ask(self, path=f"/v1/entries/{UID}/{PATH}", **headers):
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.holder.port, context=_Named(self.context, self.holder.node_uid)
        )
        try:
            connection.request("GET", path, headers={"Range": "bytes=0-9", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


class _Named:
    """A context that expects the node's name, whatever address it is reached by."""

    def __init__(self, context, node_uid):
        self.context, self.name = context, make_peer_name(node_uid)

    def wrap_socket(self, sock, **_):
        return self.context.wrap_socket(sock, server_hostname=self.name)

    def __getattr__(self, name):
        return getattr(self.context, name)


SOURCE = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("ticket", "status"),
    [
        pytest.param({}, 206, id="the ticket of this node for this version"),
        pytest.param({"node": "node-other"}, 403, id="another node's"),
        pytest.param({"uid": "uid-2"}, 403, id="for another version"),
        pytest.param({"source_digest": "sha256:" + "b" * 64}, 403, id="for another source"),
        pytest.param({"seconds": -1}, 403, id="run out"),
    ],
)
def test_C09_a_ticket_opens_one_version_to_one_node_for_a_while(peers, world, ticket, status):
    text = peers.ticket(**{"source_digest": SOURCE, **ticket})
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        caller = Caller(holder, peers.credentials(US))
        headers = {"ModelCache-Ticket": text, "ModelCache-Source": SOURCE}
        assert caller.ask(**headers)[0] == status


@pytest.mark.parametrize("text", ["", "x", "a.b", "e30.e30", "." * 5000, "\x7f"])
def test_what_is_no_ticket_opens_nothing(peers, world, text):
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        caller = Caller(holder, peers.credentials(US))
        assert caller.ask(**{"ModelCache-Ticket": text, "ModelCache-Source": SOURCE})[0] == 403


def test_a_ticket_signed_by_another_authority_opens_nothing(peers, world):
    text = PeerWorld().ticket(SOURCE)
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        caller = Caller(holder, peers.credentials(US))
        assert caller.ask(**{"ModelCache-Ticket": text, "ModelCache-Source": SOURCE})[0] == 403


def test_without_a_certificate_of_our_authority_nobody_is_heard(peers, world):
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        bare = ssl.create_default_context(cadata=peers.authority.bundle.decode())
        strange = PeerWorld().credentials(US)
        strange.client_context().load_verify_locations(cadata=peers.authority.bundle.decode())
        for context in (bare, strange.client_context()):
            caller = Caller(holder, strange)
            caller.context = context
            with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
                caller.ask()


def test_ranges_and_targets_that_make_no_sense_are_refused(peers, world):
    headers = {"ModelCache-Ticket": peers.ticket(SOURCE), "ModelCache-Source": SOURCE}
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        caller = Caller(holder, peers.credentials(US))
        assert caller.ask("/metrics", **headers)[0] == 404
        assert caller.ask(**headers, Range="bytes=9-0")[0] == 400
        assert caller.ask(**headers, Range="bytes=0-1,3-4")[0] == 400
        status, body = caller.ask(f"/v1/entries/{UID}", **headers)
        assert (status, body) == (200, b'{"verifiedBytes": 1}')


def test_bytes_behind_four_gibibytes_are_served(peers, tmp_path):
    with (tmp_path / PATH).open("wb") as file:
        file.seek(5 << 30)
        file.write(b"the end")
    headers = {"ModelCache-Ticket": peers.ticket(SOURCE), "ModelCache-Source": SOURCE}
    with peers.node("node-a", FolderShelf(tmp_path)) as holder:
        caller = Caller(holder, peers.credentials(US))
        span = f"bytes={(5 << 30) - 2}-{(5 << 30) + 6}"
        assert caller.ask(**headers, Range=span) == (206, b"\0\0the end")


def test_routes_hide_the_ticket_from_logs(peers):
    book = peers.book()
    PeerGrants({}, lambda path: path, book).offer(SOURCE, "secret-ticket")
    with peers.node("node-a", FolderShelf(None)) as holder:
        route = book.ask_progress(UID, holder)
    assert "secret-ticket" in route.headers.values()
    assert "secret" not in repr(route)
    assert urlsplit(route.url).scheme == "https"
