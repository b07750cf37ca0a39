"""One tier of a simulated node: a ledger, a history, and the agent's decisions about both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from modelcache_agent.decide.admission import Room, admit, describe_never_fits
from modelcache_agent.decide.history import History, LoadCost
from modelcache_agent.decide.ledger import Blob, Ledger
from modelcache_agent.decide.policies import EvictionPolicy
from modelcache_agent.decide.policies.gdsf import find_priority
from modelcache_agent.decide.world import Held
from modelcache_agent.tiers.history_book import HistoryBook
from modelcache_api.names import Reason
from modelcache_simulator.contents import Content
from modelcache_simulator.order import CandidateOrder, Moment
from modelcache_simulator.slab import Placement, Slab

# The book that an agent keeps on its disk is never saved here.
_UNSAVED: Final = Path("history.json")
_OTHERS: Final = "all that may not go or need not"


@dataclass(slots=True)
class VirtualClock:
    """Seconds of the trace; whoever plays the trace sets it."""

    now: float = 0.0

    def __call__(self) -> float:
        """Now."""
        return self.now


@dataclass(frozen=True, slots=True)
class TierPlan:
    """How one tier is set up.

    `load` is what bringing a content from the next tier down takes. A tier that `may_bypass` leaves
    out newcomers that its policy finds worth less than what would give way. `protects_attached`:
    what a pod uses does not go. In a `slab` each content lies in one piece.
    """

    name: str
    capacity_bytes: int
    load: LoadCost
    may_bypass: bool
    protects_attached: bool
    is_slab: bool = False


class Offer(NamedTuple):
    """What became of a newcomer. `reason` is None if it came, `BYPASSED` if policy left it out.

    `FRAGMENTED`: whoever may go and move, no room in one piece is left for it.
    """

    reason: str | None
    victims: tuple[str, ...] = ()


BYPASSED: Final = "Bypassed"
FRAGMENTED: Final = "Fragmented"


class SimulatedTier:
    """Holds contents within its capacity; the agent's code says who comes and who goes."""

    def __init__(self, plan: TierPlan, policy: EvictionPolicy, clock: VirtualClock) -> None:
        self.plan = plan
        self.used_bytes = 0
        self._policy = policy
        self._clock = clock
        self._book = HistoryBook(_UNSAVED, clock)
        self._turn = 0
        self._held: dict[str, Content] = {}
        self._last_used: dict[str, float] = {}
        self._attached: set[str] = set()
        self._order = CandidateOrder(policy, self._look)
        self._empty = Ledger(plan.capacity_bytes)
        self.slab = Slab(plan.capacity_bytes) if plan.is_slab else None

    def __contains__(self, content: Content) -> bool:
        return content.digest in self._held

    def holds(self, digest: str) -> bool:
        """True if the content is here."""
        return digest in self._held

    def hold(
        self, content: Content, last_used: float, history: History, *, is_attached: bool
    ) -> None:
        """The content is here from the beginning, with what a node remembers of it."""
        self._book.remember(content.digest, history)
        self._note_load(content)
        self._keep(content, last_used)
        if is_attached:
            self._attached.add(content.digest)
        self._note_candidate(content.digest)

    def attach(self, content: Content) -> None:
        """A pod begins to use a content; what is not held here is remembered as well."""
        self._turn += 1
        self._book.note_attach(content.digest)
        self._attached.add(content.digest)
        if content.digest in self._held:
            self._last_used[content.digest] = self._clock.now
            self._note_candidate(content.digest)

    def release(self, content: Content) -> None:
        """The last pod that used it is gone. While protected it was in use until now."""
        self._attached.discard(content.digest)
        self._book.note_running((content.digest,))
        if content.digest in self._held:
            if self.plan.protects_attached:
                self._last_used[content.digest] = self._clock.now
            self._note_candidate(content.digest)
        if self.slab is not None:
            self.slab.tidy(self._find_mapped())

    def offer(self, content: Content) -> Offer:
        """A content that is not held comes in, if it may; victims are gone when this returns."""
        if describe_never_fits(content.entry, self._empty) is not None:
            return Offer(Reason.NEVER_FITS)
        missing = content.size_bytes - (self.plan.capacity_bytes - self.used_bytes)
        candidates = self._find_candidates(missing)
        room, view = admit(self._make_room(candidates), content.entry, content.size_bytes)
        if view is not None and view.reason is not Reason.WAITING:
            return Offer(view.reason)
        leaving = {victim.digest for victim in room.victims}
        victims: tuple[Held, ...] = tuple(h for h in candidates if h.digest in leaving)
        placement = None
        if self.slab is not None:
            victims, placement = self._find_place(self.slab, content, victims)
            if placement is None:
                return Offer(FRAGMENTED)
        if self.plan.may_bypass and self._policy.refuse(self._look_at_newcomer(content), victims):
            return Offer(BYPASSED)
        for victim in victims:
            self._book.note_eviction(find_priority(victim))
            self.drop(victim.digest)
        if self.slab is not None and placement is not None:
            self.slab.accept(placement)
        self._take(content)
        return Offer(None, tuple(victim.digest for victim in victims))

    def drop(self, digest: str) -> None:
        """The content is gone."""
        self.used_bytes -= self._held.pop(digest).size_bytes
        self._order.discard(digest)
        del self._last_used[digest]
        if self.slab is not None:
            self.slab.remove(digest)

    def _find_place(
        self, slab: Slab, content: Content, victims: tuple[Held, ...]
    ) -> tuple[tuple[Held, ...], Placement | None]:
        """Room in one piece; where victims do not make it, others go too, in the policy's order."""
        mapped, going = self._find_mapped(), victims
        others = self._list_others(victims)
        while True:
            leaving = [held.digest for held in going]
            placement = slab.try_place(content.digest, content.size_bytes, leaving, mapped)
            following = None if placement is not None else next(others, None)
            if following is None:
                return going, placement
            going = (*going, following)

    def _list_others(self, victims: tuple[Held, ...]) -> Iterator[Held]:
        """All else that may go, in order; ranked only if somebody asks."""
        for ranked in self._policy.rank(self._order.find_first(self.plan.capacity_bytes)):
            if ranked.held not in victims:
                yield ranked.held

    def _find_mapped(self) -> frozenset[str]:
        return frozenset(self._attached) if self.plan.protects_attached else frozenset()

    def _take(self, content: Content) -> None:
        digest = content.digest
        self._note_load(content)
        self._book.note_arrival(digest)
        self._keep(content, self._clock.now)

    def _note_load(self, content: Content) -> None:
        if self._book.look(content.digest).load != self.plan.load:
            self._book.note_load(content.digest, self.plan.load)

    def _keep(self, content: Content, last_used: float) -> None:
        self._held[content.digest] = content
        self._last_used[content.digest] = last_used
        self.used_bytes += content.size_bytes

    def _note_candidate(self, digest: str) -> None:
        if self.plan.protects_attached and digest in self._attached:
            self._order.discard(digest)
        else:
            self._order.put(digest, Moment(self._clock.now, self._turn))

    def _find_candidates(self, missing_bytes: int) -> tuple[Held, ...]:
        if missing_bytes <= 0:
            return ()
        if not self.plan.protects_attached:
            self._refresh_running()
        return self._order.find_first(missing_bytes)

    def _refresh_running(self) -> None:
        """An attach that lasts does not age below one: O(contents that pods use now)."""
        for digest in sorted(self._attached & self._held.keys()):
            self._book.note_running((self._held[digest].digest,))
            self._note_candidate(digest)

    def _look(self, digest: str) -> Held:
        content = self._held[digest]
        return Held(
            content.digest,
            content.blobs,
            self._last_used[digest],
            history=self._book.look(content.digest),
        )

    def _look_at_newcomer(self, content: Content) -> Held:
        """As a policy sees it once the pod that waits for it has attached it."""
        history = self._book.look(content.digest)
        known = replace(history, attaches=history.attaches + 1.0, load=self.plan.load)
        return Held(content.digest, content.blobs, self._clock.now, history=known)

    def _make_room(self, candidates: Iterable[Held]) -> Room:
        unused = tuple(candidates)
        return Room(
            ledger=self._make_ledger(unused),
            free_bytes=self.plan.capacity_bytes,
            policy=self._policy,
            unused=unused,
        )

    def _make_ledger(self, candidates: Iterable[Held]) -> Ledger:
        """The tier's book, with all that is not under discussion in one line of it."""
        versions: dict[str, frozenset[Blob]] = {held.digest: held.blobs for held in candidates}
        others = self.used_bytes - sum(held.size_bytes for held in candidates)
        if others:
            versions[_OTHERS] = frozenset({Blob(_OTHERS, others)})
        return Ledger(self.plan.capacity_bytes, versions=versions)
