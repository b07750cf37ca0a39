"""Manifests used last, bounded by what they weigh."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class WeighedCache(Generic[_T]):
    """Least recently used goes first, until the weights fit. Values must be immutable."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[Hashable, tuple[_T, int]] = OrderedDict()
        self._weight = 0

    def get(self, key: Hashable) -> _T | None:
        """The value, now the youngest; or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: Hashable, value: _T, weight: int) -> None:
        """Keep the value, unless it alone weighs more than all may."""
        self.drop(key)
        if weight > self._capacity:
            return
        self._entries[key] = (value, weight)
        self._weight += weight
        while self._weight > self._capacity:
            _, (_, freed) = self._entries.popitem(last=False)
            self._weight -= freed

    def drop(self, key: Hashable) -> None:
        """Forget the value; a no-op if it is not there."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry[1]
