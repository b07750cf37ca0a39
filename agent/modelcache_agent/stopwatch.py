"""Times a transfer by its reports of progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from modelcache_agent.decide.history import LoadCost, measure_load
from modelcache_agent.fetch import Progress


@dataclass(slots=True)
class Stopwatch:
    """Runs from when it is made. `clock` is monotonic seconds; `forward` gets each report too."""

    clock: Callable[[], float]
    forward: Callable[[Progress], None]
    _began_at: float = field(init=False)
    _first: tuple[float, Progress] | None = None
    _last: tuple[float, Progress] | None = None

    def __post_init__(self) -> None:
        self._began_at = self.clock()

    def note(self, progress: Progress) -> None:
        """A report came. Time after the last bytes is none of the source's."""
        known_bytes = 0 if self._last is None else self._last[1].verified_bytes
        if progress.verified_bytes > known_bytes:
            self._last = (self.clock(), progress)
            self._first = self._first or self._last
        self.forward(progress)

    def measure(self) -> LoadCost | None:
        """What the transfer cost; None if it says too little: it was resumed, or over at once."""
        if self._first is None or self._last is None:
            return None
        (first_at, first), (last_at, last) = self._first, self._last
        return measure_load(
            elapsed_seconds=last_at - self._began_at,
            between_seconds=last_at - first_at,
            between_bytes=last.verified_bytes - first.verified_bytes,
            total_bytes=last.total_bytes,
        )
