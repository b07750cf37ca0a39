"""What a grant says of other nodes, and who was told to read which source. Knows nothing of HTTP.

Claims live in memory: a new leader knows none, and then goes by what the nodes report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from modelcache_api.peers import Ticket
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import Holder, PeerGrant, PeerQuery
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.peers import (
    Claim,
    Question,
    Role,
    choose_awaited,
    choose_holders,
    choose_role,
    find_candidates,
)
from modelcache_operator.decide.world import Uid
from modelcache_operator.peer_credentials import PeerCredentials
from modelcache_operator.ports.world import WorldReader

# As long as URLs are signed for: whoever has one renews both together.
TICKET_SECONDS: Final = 3600.0
_MOST_CLAIMS: Final = 10_000


@dataclass(frozen=True, slots=True)
class PeeringSettings:
    """`topology`: labels of Nodes, from the smallest place to the largest."""

    topology: Sequence[str] = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class Peering:
    """Decides for one caller and entry at a time."""

    def __init__(
        self,
        world: WorldReader,
        credentials: PeerCredentials,
        *,
        may_claim: Callable[[], bool],
        now: Callable[[], float],
        clock: Callable[[], float],
        settings: PeeringSettings | None = None,
    ) -> None:
        self._world = world
        self._credentials = credentials
        self._may_claim = may_claim
        self._now = now
        self._clock = clock
        self._settings = settings or PeeringSettings()
        self._claims: dict[Uid, tuple[Uid, float]] = {}

    def grant(
        self,
        caller: Caller,
        entry: EntrySpec,
        query: PeerQuery,
        content_digest: str | None,
        *,
        may_read: Callable[[], bool] = lambda: True,
    ) -> PeerGrant | None:
        """The caller's leave to read from others; None while there is no authority to sign it.

        `may_read` is asked if it would read the source. If not, nobody waits for it.
        """
        uid, avoid = Uid(entry.uid), frozenset(query.avoid)
        others = self._world.nodes_of_entry(uid)
        candidates = find_candidates(
            self._world.node(caller.node),
            caller.node_uid,
            entry,
            ((other, self._world.node(other.name)) for other in others),
            content_digest=content_digest,
            topology=self._settings.topology,
        )
        claim = self._claim_of(uid)
        role = choose_role(
            Question(
                caller_uid=caller.node_uid,
                candidates=candidates,
                claim=claim,
                is_content_known=content_digest is not None,
                avoid=avoid,
                waited_seconds=query.waited_seconds,
                may_claim=self._may_claim(),
            )
        )
        ticket = Ticket(caller.node_uid, uid, entry.source_digest, self._now() + TICKET_SECONDS)
        signed = self._credentials.sign(ticket)
        if signed is None:
            return None
        if role is Role.READ and may_read():
            self._note_claim(uid, caller.node_uid)
        holders: tuple[Holder, ...] = ()
        if content_digest is not None and role is not Role.ASK_AGAIN:
            holders = choose_holders(caller.node_uid, candidates, avoid)
        elif role is Role.FOLLOW:
            holders = choose_awaited(candidates, claim, avoid)
        return PeerGrant(ticket=signed, holders=holders, reads_source=role is Role.READ)

    def _claim_of(self, uid: Uid) -> Claim | None:
        node_uid, at = self._claims.get(uid, (None, 0.0))
        return None if node_uid is None else Claim(node_uid, self._clock() - at)

    def _note_claim(self, uid: Uid, node_uid: Uid) -> None:
        if self._claims.get(uid, ("", 0.0))[0] != node_uid:
            self._claims.pop(uid, None)
            self._claims[uid] = (node_uid, self._clock())
        if len(self._claims) > _MOST_CLAIMS:
            del self._claims[next(iter(self._claims))]
