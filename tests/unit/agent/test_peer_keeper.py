"""A certificate for other agents is there soon, and another one long before it ends."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from fakes.peer_world import US, PeerWorld
from modelcache_agent.adapters.system_clock import SystemClock
from modelcache_agent.fetch import GrantUnavailableError
from modelcache_agent.peers import keeper
from modelcache_agent.peers.credentials import PeerCredentials, TicketError
from modelcache_api.names import Reason
from modelcache_api.peers import make_peer_name
from modelcache_operator.ports.authority import Authority
from modelcache_operator.tls import make_authority

LIFE = 3600.0
SOURCE = "sha256:" + "a" * 64
SHOWN = {"subjectAltName": (("DNS", make_peer_name(US)),)}


class Operator:
    """Answers by what `script` holds for each request: an error, a document, or None for good."""

    def __init__(self, peers, script):
        self.peers = peers
        self.script = list(script)
        self.credentials = PeerCredentials()

    async def post(self, path, body):
        told = self.script.pop(0)
        if isinstance(told, Exception):
            raise told
        if told is not None:
            return 200, told
        signer = self.peers.signer()
        answer = signer.certify(US, self.credentials.public_key)
        return 200, answer.model_dump(by_alias=True)


async def keep(operator, monkeypatch):
    """The pauses that the keeper makes until the script is over."""
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)
        if not operator.script:
            raise asyncio.CancelledError

    shown = SimpleNamespace(sleep=pause, to_thread=asyncio.to_thread)
    monkeypatch.setattr(keeper, "asyncio", shown)
    renewed = []
    running = keeper.CertificateKeeper(
        operator, operator.credentials, SystemClock(), lambda: renewed.append(1)
    )
    with pytest.raises(asyncio.CancelledError):
        await running.run()
    return pauses, len(renewed)


async def test_it_is_renewed_with_a_third_of_its_life_left_and_failures_are_tried_again_soon(
    monkeypatch,
):
    away = GrantUnavailableError(Reason.OPERATOR_UNREACHABLE, "away")
    operator = Operator(PeerWorld(), [away, {"odd": "answer"}, None, away, None])
    pauses, renewed = await keep(operator, monkeypatch)
    assert renewed == 2
    assert operator.credentials.is_certified
    first, second, good, again, last = pauses
    assert 1 <= first <= 2 <= second <= 4
    assert 0.5 * LIFE < good <= 2 / 3 * LIFE
    assert 0.5 * LIFE < last <= 2 / 3 * LIFE
    assert 1 <= again <= 2, "patience begins anew"


async def test_renewals_bring_the_next_authority_before_it_signs_and_drop_the_retired_one(
    monkeypatch,
):
    peers = PeerWorld()
    old, new = peers.authority.current, make_authority(datetime.now(UTC))
    operator = Operator(peers, ())

    async def renew(authority):
        peers.authority = authority
        operator.script = [None]
        await keep(operator, monkeypatch)

    def believes(signed_by):
        ticket = PeerWorld(Authority(signed_by)).ticket(SOURCE)
        try:
            operator.credentials.check_ticket(ticket, SHOWN, "uid-1", SOURCE, time.time())
        except TicketError:
            return False
        return True

    await renew(Authority(old))
    assert (believes(old), believes(new)) == (True, False)
    await renew(Authority(old, following=new))
    assert (believes(old), believes(new)) == (True, True)
    await renew(Authority(new, previous=old.certificate))
    assert (believes(old), believes(new)) == (True, True)
    await renew(Authority(new))
    assert (believes(old), believes(new)) == (False, True)
