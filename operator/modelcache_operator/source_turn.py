"""One caller's turn at one version's source, while one grant is made."""

from __future__ import annotations

from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import SlotAnswer, SlotQuery
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.world import ModelVersionView
from modelcache_operator.slots import Slots


class SourceTurn:
    """Asked for only if the caller would read the source, and once at most.

    A single pod (no caller) takes no turns: it reads sources that no limit covers.
    """

    def __init__(
        self,
        slots: Slots | None,
        caller: Caller | None,
        entry: EntrySpec,
        version: ModelVersionView,
        query: SlotQuery | None,
    ) -> None:
        self._slots = slots if slots is not None and slots.covers(version) else None
        self._caller = caller
        self._entry = entry
        self._version = version
        self._query = query
        self.answer: SlotAnswer | None = None

    @property
    def is_refused(self) -> bool:
        """True if the caller would not keep to the limit that covers the version."""
        return self._slots is not None and (self._query is None or self._caller is None)

    def may_read(self) -> bool:
        """True if the caller may read the source now, or asks for a page of what it reads."""
        if self._slots is None or self._caller is None or self._query is None:
            return True
        if not self._query.wants:
            return True
        if self.answer is None:
            self.answer = self._slots.ask(self._caller, self._entry, self._version, self._query)
        return self.answer.is_granted

    def give_up(self) -> None:
        """The caller waits for another node instead, and keeps no place in the queue."""
        if self._slots is not None and self._caller is not None and self._query is not None:
            self._slots.release(self._caller, self._entry.uid, self._query)

    def tell(self) -> SlotAnswer | None:
        """What goes with the files. Who reads from others has no lease, and knows of the limit."""
        if self._slots is None or self._caller is None or self._query is None:
            return None
        if not self._query.wants:
            return None
        if self.answer is not None:
            return self.answer
        query = SlotQuery(asked_at=self._query.asked_at, wants=False)
        return self._slots.ask(self._caller, self._entry, self._version, query)
