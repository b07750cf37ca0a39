"""For how long a watch that ought to be open has not been."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

# A stream that ends sooner and tells nothing was cut by something in between.
_PROOF_SECONDS: Final = 3.0
# No stream lives longer: the server and our clients end it and open another. An opening that
# nothing followed in this time is not believed any more.
_LONGEST_SECONDS: Final = 700.0
# After an outage as long as the limit a watch still needs the last pause between its tries.
_REOPENING_SECONDS: Final = 60.0


class WatchHealth:
    """Told of each opening and each end, by the plural of the resource; ignores all others.

    A stream that stays open is a good one, whether anything happens or not.
    """

    def __init__(self, monotonic: Callable[[], float], resources: Iterable[str]) -> None:
        self._monotonic = monotonic
        self._resources = frozenset(resources)
        # When each was last known to be open, streams that are open now left out.
        self._seen_at: dict[str, float] = {}
        self._opened_at: dict[str, float] = {}

    def begin(self) -> None:
        """From now on all of them ought to be open; before, none is missed."""
        self._seen_at = dict.fromkeys(self._resources, self._monotonic())

    def opened(self, resource: str) -> None:
        """The API server has answered a watch with a stream. It takes the place of the former."""
        self.closed(resource)
        if resource in self._seen_at:
            self._opened_at[resource] = self._monotonic()

    def heard(self, resource: str) -> None:
        """A stream has told of a change."""
        if resource in self._seen_at:
            self._seen_at[resource] = self._monotonic()

    def closed(self, resource: str) -> None:
        """There is no stream now; safe to repeat."""
        if resource in self._seen_at:
            self._seen_at[resource] = self._last_seen(resource)
            self._opened_at.pop(resource, None)

    def complain(self, limit_seconds: float) -> str | None:
        """What is wrong with the watches, if one has been missing for longer than the limit."""
        now = self._monotonic()
        missing = {name: now - self._last_seen(name) for name in sorted(self._seen_at)}
        patience = limit_seconds + _REOPENING_SECONDS
        missing = {name: seconds for name, seconds in missing.items() if seconds > patience}
        if not missing:
            return None
        return (
            f"no watch of {', '.join(missing)} has been open for {max(missing.values()):.0f} s"
            " (--silence-limit): check the verb watch in the operator's ClusterRole, and what ends"
            " long requests on the path to the API server"
        )

    def _last_seen(self, resource: str) -> float:
        now, seen_at = self._monotonic(), self._seen_at[resource]
        opened_at = self._opened_at.get(resource)
        if opened_at is None or now - opened_at < _PROOF_SECONDS:
            return seen_at
        return max(seen_at, min(now, opened_at + _LONGEST_SECONDS))
