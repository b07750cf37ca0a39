"""Whom to read from: what the operator granted, and what came of asking them.

The streams ask from their threads, grants come in on the event loop; one lock guards it all.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from modelcache_agent.decide.peer_choice import PAUSE_SECONDS, PeerView, Step, choose_peer
from modelcache_agent.fetch.routes import Answer, NoRoute, PeerRoute, Route, SourceRoute
from modelcache_api.limits import MAX_SUSPECTS
from modelcache_api.names import HEADER_SOURCE, HEADER_TICKET, PATH_PEER_ENTRIES
from modelcache_api.peers import make_peer_name
from modelcache_api.wire import MAX_AVOIDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelcache_agent.peers.credentials import PeerCredentials
    from modelcache_agent.ports.clock import Clock
    from modelcache_api.wire import Holder, PeerGrant

_log = logging.getLogger(__name__)
# How long a node is left alone for a version after such an answer.
_REST_SECONDS: Final = {
    Answer.BUSY: 0.5,
    Answer.MISSING: 1.0,
    Answer.BROKEN: 10.0,
    Answer.SLOW: 30.0,
    Answer.REFUSED: 60.0,
    Answer.GONE: 30.0,
}
# After these the operator is told not to count on it for us.
_AVOIDED_AFTER: Final = frozenset({Answer.SLOW, Answer.REFUSED, Answer.GONE, Answer.BROKEN})
_MOST_VERSIONS: Final = 1024


@dataclass(slots=True)
class _Peer:
    holder: Holder
    in_use: int = 0
    rests_until: float = 0.0


@dataclass(slots=True)
class _Session:
    """One version that is being fetched. Times are monotonic seconds."""

    source_digest: str
    ticket: str
    reads_source: bool
    progress_at: float
    asked_at: float = 0.0
    peers: dict[str, _Peer] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict, repr=False)
    """Which ticket each node was the first to refuse since it last served us."""
    needs_ticket: bool = False

    def note_refusal(self, node_uid: str, ticket: str) -> bool:
        """True if a newer ticket may open what this one did not, and none was tried yet."""
        if self.refused.setdefault(node_uid, ticket) != ticket:
            return False
        self.needs_ticket = self.needs_ticket or ticket == self.ticket
        return True

    def renounce_tickets(self) -> None:
        """No newer one is to be had: whoever refuses this one is left."""
        self.refused = dict.fromkeys(self.refused, "")
        self.needs_ticket = False


class PeerBook:
    """Implements the engine's Routes. `on_suspect` is called from any thread."""

    def __init__(
        self,
        credentials: PeerCredentials,
        clock: Clock,
        on_suspect: Callable[[], None] = lambda: None,
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._on_suspect = on_suspect
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._wrong: dict[str, set[str]] = {}
        self._avoided: dict[str, dict[str, float]] = {}
        self._suspects: dict[str, None] = {}
        # Who counts increases does not see a series begin.
        self._answers: Counter[str] = Counter(dict.fromkeys(Answer, 0))

    @property
    def suspects(self) -> tuple[str, ...]:
        """UIDs of Nodes that served wrong bytes, since this agent started."""
        with self._lock:
            return tuple(self._suspects)

    @property
    def answers(self) -> Counter[str]:
        """How often which answer came."""
        with self._lock:
            return Counter(self._answers)

    def learn(self, uid: str, source_digest: str, grant: PeerGrant | None) -> None:
        """Take in what a grant says of other nodes; what is known of them stays."""
        with self._lock:
            if grant is None:
                self._sessions.pop(uid, None)
                return
            old = self._sessions.get(uid)
            session = _Session(
                source_digest, grant.ticket, grant.reads_source, self._clock.monotonic()
            )
            if old is not None and old.source_digest == source_digest:
                session.progress_at, session.asked_at = old.progress_at, old.asked_at
                session.refused = old.refused
            known = {} if old is None else old.peers
            for holder in grant.holders:
                peer = known.get(holder.node_uid) or _Peer(holder)
                peer.holder = holder
                session.peers[holder.node_uid] = peer
            self._sessions[uid] = session

    def forget(self, uid: str) -> None:
        """The transfer is over. Who was wrong about the version stays known."""
        with self._lock:
            self._sessions.pop(uid, None)

    def avoid(self, uid: str, node_uid: str, seconds: float) -> None:
        """Do not count on the node for this version for a while."""
        with self._lock:
            self._avoid(uid, node_uid, seconds)

    def avoided(self, uid: str) -> tuple[str, ...]:
        """UIDs of Nodes that are not read from for this version."""
        with self._lock:
            return tuple(sorted(self._find_avoided(uid)))[:MAX_AVOIDED]

    def ask_progress(self, uid: str, holder: Holder) -> PeerRoute | None:
        """How to ask a node how far it is; None without a grant or certificate."""
        with self._lock:
            session = self._sessions.get(uid)
            return None if session is None else self._route(uid, session, holder, None)

    def choose(self, uid: str, path: str) -> Route:
        """From where the next part is read."""
        with self._lock:
            session = self._sessions.get(uid)
            if session is None:
                return SourceRoute()
            peers = session.peers if self._credentials.is_certified else {}
            now, avoided = self._clock.monotonic(), self._find_avoided(uid)
            if session.needs_ticket:
                session.asked_at = now
                return NoRoute(PAUSE_SECONDS, must_renew=True)
            choice = choose_peer(
                (
                    PeerView(node, p.holder.distance, p.in_use, p.rests_until, node in avoided)
                    for node, p in peers.items()
                ),
                now=now,
                jitter=self._clock.jitter(),
                reads_source=session.reads_source,
                progress_at=session.progress_at,
                asked_at=session.asked_at,
            )
            if choice.step is Step.SOURCE:
                return SourceRoute()
            if choice.step is Step.RENEW:
                session.asked_at = now
                return NoRoute(PAUSE_SECONDS, must_renew=True)
            peer = session.peers.get(choice.node_uid or "")
            route = None if peer is None else self._route(uid, session, peer.holder, path)
            if peer is None or route is None:
                return NoRoute(PAUSE_SECONDS)
            peer.in_use += 1
            return route

    def report(self, uid: str, route: PeerRoute, answer: Answer, message: str = "") -> None:
        """What came of it; who served wrong bytes is not asked again for this version."""
        node_uid, now, may_retry = route.node_uid, self._clock.monotonic(), False
        with self._lock:
            self._answers[answer] += 1
            session = self._sessions.get(uid)
            if answer is Answer.REFUSED and session is not None:
                may_retry = session.note_refusal(node_uid, route.headers[HEADER_TICKET])
            peer = None if session is None else session.peers.get(node_uid)
            if peer is not None:
                peer.in_use = max(0, peer.in_use - 1)
                peer.rests_until = now + (0.0 if may_retry else _REST_SECONDS.get(answer, 0.0))
            if answer is Answer.SERVED and session is not None:
                session.progress_at = now
                session.refused.pop(node_uid, None)
            if answer in _AVOIDED_AFTER and not may_retry:
                self._avoid(uid, node_uid, _REST_SECONDS[answer])
            if answer is Answer.WRONG:
                self._note_wrong(uid, node_uid)
        if answer is Answer.WRONG:
            _log.error("uid=%s: node %s served wrong bytes: %s", uid, node_uid, message)
            self._on_suspect()
        elif may_retry:
            _log.info("uid=%s: node %s refused the ticket: asking for a new one", uid, node_uid)
        elif answer in _AVOIDED_AFTER:
            _log.warning("uid=%s: node %s is left alone (%s): %s", uid, node_uid, answer, message)

    def allow_source(self, uid: str) -> None:
        """The operator cannot be asked: read the source where others have nothing."""
        with self._lock:
            if (session := self._sessions.get(uid)) is not None:
                session.reads_source = True
                session.renounce_tickets()

    def _route(
        self, uid: str, session: _Session, holder: Holder, path: str | None
    ) -> PeerRoute | None:
        context = self._credentials.client_context()
        if context is None:
            return None
        host = f"[{holder.address}]" if ":" in holder.address else holder.address
        what = quote(uid, safe="") + ("" if path is None else f"/{quote(path, safe='')}")
        return PeerRoute(
            node_uid=holder.node_uid,
            url=f"https://{host}:{holder.port}{PATH_PEER_ENTRIES}{what}",
            headers={HEADER_TICKET: session.ticket, HEADER_SOURCE: session.source_digest},
            server_name=make_peer_name(holder.node_uid),
            context=context,
        )

    def _find_avoided(self, uid: str) -> set[str]:
        now = self._clock.monotonic()
        until = self._avoided.get(uid, {})
        return {node for node, end in until.items() if end > now} | self._wrong.get(uid, set())

    def _avoid(self, uid: str, node_uid: str, seconds: float) -> None:
        self._avoided.setdefault(uid, {})[node_uid] = self._clock.monotonic() + seconds
        _bound(self._avoided)

    def _note_wrong(self, uid: str, node_uid: str) -> None:
        self._wrong.setdefault(uid, set()).add(node_uid)
        _bound(self._wrong)
        if len(self._suspects) < MAX_SUSPECTS:
            self._suspects[node_uid] = None


def _bound(by_version: dict[str, set[str]] | dict[str, dict[str, float]]) -> None:
    if len(by_version) > _MOST_VERSIONS:
        by_version.pop(next(iter(by_version)))
