"""How often pods attached each content, and how long transfers took: history.json.

Times are Unix seconds by the store's clock. A damaged book counts as empty: contents then are
evicted as if nobody had attached them yet, longest unused first.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from modelcache_agent.decide.history import NOT_MEASURED, History, LoadCost, Past
from modelcache_agent.tiers.durable import write_atomically
from modelcache_agent.tiers.layout import is_hex_digest
from modelcache_api.manifest import ContentDigest, digest_hex

_log = logging.getLogger(__name__)
# Contents that are gone and still remembered: some 250 KiB on disk.
MOST_GONE: Final = 1000
# What only ages is written down at most this often: a kill costs no attach by it.
_SAVE_SECONDS: Final = 600.0
# A wall clock that is corrected bit by bit is no clock that was wrong.
_SLEW_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Wait:
    """When a look saw a volume ask first (Unix seconds), and how long until one could fill it."""

    asked_at: float
    seconds: float = 0.0


class HistoryListener(Protocol):
    """Hears what is counted, in the thread and order in which it is."""

    def note_attach(self, digest: str, wait: Wait) -> None:
        """A pod's volume shows the content from now on."""

    def note_load(self, digest: str, cost: LoadCost) -> None:
        """A transfer was measured."""


class HistoryBook:
    """One thread uses it. What cannot be written now is written later, and still holds here.

    `listener` hears what is counted, if there is one.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._pasts: dict[str, Past] = {}
        self._turn = 0
        self._inflation = 0.0
        self._average: LoadCost | None = None
        self._is_changed = False
        self._saved_at = clock()
        self.listener: HistoryListener | None = None

    def load(self) -> None:
        """Read what an earlier process wrote."""
        try:
            document = json.loads(self._path.read_bytes())
            turn, inflation = int(_number(document["turn"])), _number(document["inflation"])
            average = _parse_load(document["load"])
            pasts = {_digest(name): _parse(row) for name, row in document["contents"].items()}
        except FileNotFoundError:
            return
        except (ValueError, TypeError, KeyError, AttributeError):
            _log.warning("the history of attaches is damaged and was dropped: it begins anew")
            return
        self._turn, self._inflation, self._average = turn, inflation, average
        self._pasts = self._clamp(pasts)

    def look(self, digest: ContentDigest) -> History:
        """What is known of a content now."""
        past = self._past(digest)
        return past.look(self._clock(), self._turn, self._average or NOT_MEASURED)

    def note_held(self, digest: ContentDigest, published_at: float) -> None:
        """The content was found at start; without a history, its record tells when it came."""
        arrived = min(self._clock(), published_at)
        self._pasts.setdefault(digest, Past(arrived, inflation=self._inflation))

    def note_arrival(self, digest: ContentDigest) -> None:
        """The content was published."""
        now = self._clock()
        self._put(digest, self._past(digest).arrive(now, self._inflation))

    def note_attach(self, digest: ContentDigest, wait: Wait | None = None) -> None:
        """A pod's volume shows the content from now on; without a `wait` it has asked just now."""
        now = self._clock()
        self._turn += 1
        self._put(digest, self._past(digest).attach(now, self._turn, self._inflation))
        if self.listener is not None:
            self.listener.note_attach(digest, wait or Wait(now))

    def remember(self, digest: ContentDigest, history: History) -> None:
        """The content's history is this one as of now, whatever was known before."""
        past = Past(
            arrived=history.arrived,
            attaches=history.attaches,
            counted_at=self._clock(),
            recent_attaches=history.recent_attaches,
            counted_turn=self._turn,
            visits=history.visits,
            inflation=history.inflation,
            load=history.load,
        )
        self._put(digest, past)

    def note_running(self, digests: Iterable[ContentDigest]) -> None:
        """Pods show these contents now."""
        now = self._clock()
        for digest in digests:
            self._pasts[digest] = self._past(digest).keep_running(now)

    def note_load(self, digest: ContentDigest, cost: LoadCost) -> None:
        """A transfer of the content was measured."""
        self._average = cost.blend(self._average)
        past = self._past(digest)
        self._put(digest, replace(past, load=cost.blend(past.load)))
        if self.listener is not None:
            self.listener.note_load(digest, cost)

    def note_eviction(self, priority: float) -> None:
        """A content of this `gdsf` priority was evicted; what is visited from now on is above."""
        self._inflation = max(self._inflation, priority)
        self._is_changed = True

    def save(self, held: frozenset[str]) -> None:
        """Write the book if something was counted, and now and then because all of it ages.

        All that is held stays in it, and of what is gone the most often attached.
        """
        is_due = abs(self._clock() - self._saved_at) >= _SAVE_SECONDS
        if not self._is_changed and not is_due:
            return
        self._forget(held)
        document = {
            "turn": self._turn,
            "inflation": self._inflation,
            "load": None if self._average is None else asdict(self._average),
            "contents": {name: asdict(self._pasts[name]) for name in sorted(self._pasts)},
        }
        self._saved_at = self._clock()
        # The order of eviction is no reason to stop on a disk that is read-only.
        with suppress(OSError):
            write_atomically(self._path, json.dumps(document, separators=(",", ":")).encode())
            self._is_changed = False

    def _past(self, digest: ContentDigest) -> Past:
        return self._pasts.get(digest) or Past(self._clock(), inflation=self._inflation)

    def _put(self, digest: ContentDigest, past: Past) -> None:
        self._pasts[digest] = past
        self._is_changed = True

    def _forget(self, held: frozenset[str]) -> None:
        now = self._clock()
        gone = self._pasts.keys() - held

        def worth(name: str) -> tuple[float, float, str]:
            past = self._pasts[name]
            return past.look(now, self._turn, NOT_MEASURED).attaches, past.arrived, name

        for name in sorted(gone, key=worth)[: max(0, len(gone) - MOST_GONE)]:
            del self._pasts[name]

    def _clamp(self, pasts: Mapping[str, Past]) -> dict[str, Past]:
        """Times in the future count as now: the clock was wrong, and the past can still age."""
        now = self._clock()
        if any(max(p.arrived, p.counted_at) > now + _SLEW_SECONDS for p in pasts.values()):
            _log.warning("contents were attached in the future: that counts as now")
        return {
            name: replace(
                past, arrived=min(now, past.arrived), counted_at=min(now, past.counted_at)
            )
            for name, past in pasts.items()
        }


def _parse(row: Mapping[str, Any]) -> Past:
    return Past(
        arrived=_number(row["arrived"]),
        attaches=_number(row["attaches"]),
        counted_at=_number(row["counted_at"]),
        recent_attaches=_number(row["recent_attaches"]),
        counted_turn=int(_number(row["counted_turn"])),
        visits=int(_number(row["visits"])),
        inflation=_number(row["inflation"]),
        load=_parse_load(row["load"]),
    )


def _parse_load(row: Mapping[str, Any] | None) -> LoadCost | None:
    if row is None:
        return None
    return LoadCost(_number(row["start_seconds"]), _number(row["seconds_per_byte"]))


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError("it is no count and no time")
    return number


def _digest(name: str) -> str:
    if not is_hex_digest(digest_hex(ContentDigest(name))):
        raise ValueError("it names what is not a content")
    return name
