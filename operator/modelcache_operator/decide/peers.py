"""Who reads a version's source for all, and from whom the others read: pure.

One node reads the source, so that a cold start of many costs the store little more than one copy.
Which one is a *claim*, remembered by whoever leads; what the nodes report makes up for a claim that
a new leader does not know of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from modelcache_api.names import EntryState
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import MAX_HOLDERS, Holder
from modelcache_operator.decide.node_status import is_lost
from modelcache_operator.decide.world import CacheNodeView, NodeView, Uid

# A node that was told to read the source may not have reported anything yet.
CLAIM_GRACE_SECONDS: Final = 15.0
# So long an agent looks for the leader, before any replica tells it to read the source.
LEADERLESS_SECONDS: Final = 10.0
# Whoever cannot reach so many that should read for it is cut off, and reads itself.
_MOST_GIVEN_UP: Final = 3
# Of the holders named, at most this many are complete, if there are others.
_MOST_COMPLETE: Final = MAX_HOLDERS // 2
_READING: Final = frozenset({EntryState.DOWNLOADING, EntryState.VERIFYING})
_OUT: Final = frozenset({EntryState.FAILED, EntryState.EVICTED})


class Role(StrEnum):
    """What a node is told to do about the source."""

    READ = "reads the source"
    FOLLOW = "reads from others"
    ASK_AGAIN = "asks the leader"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Another node with the same entry, which other agents can reach."""

    node_uid: Uid
    address: str
    port: int
    distance: int
    state: EntryState | None
    is_complete: bool

    @property
    def is_reading(self) -> bool:
        """True if it is at work on the bytes."""
        return self.state in _READING

    @property
    def may_read(self) -> bool:
        """False if it has given up on the source, or has no more use for it."""
        return self.state not in _OUT and not self.is_complete

    def as_holder(self) -> Holder:
        """As agents are told of it."""
        return Holder(
            node_uid=self.node_uid,
            address=self.address,
            port=self.port,
            distance=self.distance,
            is_complete=self.is_complete,
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """Who was told to read the source of a version, and how long ago."""

    node_uid: Uid
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Question:
    """What decides a caller's role. `avoid`: nodes that it cannot or will not read from."""

    caller_uid: Uid
    candidates: Sequence[Candidate]
    claim: Claim | None
    is_content_known: bool
    avoid: frozenset[str] = frozenset()
    waited_seconds: float = 0.0
    may_claim: bool = True


def find_candidates(
    caller: NodeView | None,
    caller_uid: Uid,
    entry: EntrySpec,
    others: Iterable[tuple[CacheNodeView, NodeView | None]],
    *,
    content_digest: str | None,
    topology: Sequence[str],
) -> tuple[Candidate, ...]:
    """The other nodes that hold the same version or should."""
    found = (
        _make_candidate(caller, entry, cache_node, node, content_digest, topology)
        for cache_node, node in others
        if cache_node.spec.node_uid != caller_uid
    )
    return tuple(candidate for candidate in found if candidate is not None)


def choose_role(question: Question) -> Role:
    """What the caller does about the source."""
    usable = {c.node_uid: c for c in question.candidates if c.node_uid not in question.avoid}
    if question.is_content_known and any(c.is_complete for c in usable.values()):
        return Role.FOLLOW
    claim = question.claim
    if claim is not None and claim.node_uid == question.caller_uid:
        return Role.READ
    if not _is_cut_off(question):
        if claim is not None and _holds(claim, usable, question.avoid):
            return Role.FOLLOW
        if not question.is_content_known and any(c.is_reading for c in usable.values()):
            return Role.FOLLOW
    if not question.may_claim and question.waited_seconds < LEADERLESS_SECONDS:
        return Role.ASK_AGAIN
    return Role.READ


def choose_holders(
    caller_uid: Uid, candidates: Iterable[Candidate], avoid: frozenset[str]
) -> tuple[Holder, ...]:
    """From whom the caller may read: near ones first, and each caller in an order of its own."""
    usable = sorted(
        (c for c in candidates if c.node_uid not in avoid and c.state not in _OUT),
        key=lambda c: (c.distance, _spread(caller_uid, c.node_uid)),
    )
    partial = [c for c in usable if not c.is_complete]
    room = max(_MOST_COMPLETE, MAX_HOLDERS - len(partial))
    chosen = [c for c in usable if c.is_complete][:room]
    chosen += partial[: MAX_HOLDERS - len(chosen)]
    return tuple(candidate.as_holder() for candidate in chosen)


def choose_awaited(
    candidates: Iterable[Candidate], claim: Claim | None, avoid: frozenset[str]
) -> tuple[Holder, ...]:
    """Whom a caller that waits may ask how far it is; none while it has not reported itself."""
    usable = [c for c in candidates if c.node_uid not in avoid]
    claimed = [c for c in usable if claim is not None and c.node_uid == claim.node_uid]
    reading = sorted((c for c in usable if c.is_reading), key=lambda c: c.node_uid)
    return tuple(candidate.as_holder() for candidate in (claimed or reading)[:1])


def _is_cut_off(question: Question) -> bool:
    """One reader after the other was waited for in vain: the network is closed, or nearly so."""
    given_up = (c for c in question.candidates if c.node_uid in question.avoid)
    return not question.is_content_known and sum(1 for _ in given_up) >= _MOST_GIVEN_UP


def _holds(claim: Claim, usable: Mapping[Uid, Candidate], avoid: frozenset[str]) -> bool:
    if claim.node_uid in avoid:
        return False
    candidate = usable.get(claim.node_uid)
    if candidate is None:
        return claim.age_seconds < CLAIM_GRACE_SECONDS
    return candidate.may_read or claim.age_seconds < CLAIM_GRACE_SECONDS


def _make_candidate(
    caller: NodeView | None,
    entry: EntrySpec,
    cache_node: CacheNodeView,
    node: NodeView | None,
    content_digest: str | None,
    topology: Sequence[str],
) -> Candidate | None:
    peer = cache_node.status.peer
    if node is None or node.uid != cache_node.spec.node_uid or node.is_deleted or peer is None:
        return None
    theirs = cache_node.spec.find_entry(entry.uid)
    if theirs is None or theirs.source_digest != entry.source_digest or is_lost(cache_node):
        return None
    status = next((s for s in cache_node.status.entries if s.uid == entry.uid), None)
    state = None if status is None else status.state
    is_complete = (
        status is not None
        and state is EntryState.CACHED
        and content_digest is not None
        and status.content_digest == content_digest
    )
    return Candidate(
        node_uid=node.uid,
        address=peer.address,
        port=peer.port,
        distance=_distance(caller, node, topology),
        state=state,
        is_complete=is_complete,
    )


def _distance(caller: NodeView | None, node: NodeView, topology: Sequence[str]) -> int:
    """The first of the labels, from the smallest place to the largest, that both nodes share."""
    if caller is None:
        return len(topology)
    shared = (
        number
        for number, key in enumerate(topology)
        if caller.labels.get(key) and caller.labels.get(key) == node.labels.get(key)
    )
    return next(shared, len(topology))


def _spread(caller_uid: str, node_uid: str) -> bytes:
    return hashlib.sha256(f"{caller_uid} {node_uid}".encode()).digest()
