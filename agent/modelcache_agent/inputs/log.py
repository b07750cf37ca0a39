"""Writes the input log: two files in the store's folder `inputs`, bounded together.

The store's thread writes all lines, also those of happenings, so their order is the one in which
things were done to the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from modelcache_agent.decide.actions import Plan
from modelcache_agent.decide.history import LoadCost
from modelcache_agent.decide.world import World
from modelcache_agent.inputs.codec import CodecError
from modelcache_agent.inputs.records import (
    Happening,
    Header,
    WorldWriter,
    write_happening,
    write_header,
)
from modelcache_agent.tiers.history_book import Wait

_log = logging.getLogger(__name__)


class InputLog:
    """`clock` is Unix seconds, `size_of` the bytes of a content that is held.

    A line that cannot be written is lost, told of once, and followed by one that says all.
    """

    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        header: Header,
        *,
        clock: Callable[[], float],
        size_of: Callable[[str], int | None],
    ) -> None:
        self._current = folder / "current.jsonl"
        self._previous = folder / "previous.jsonl"
        self._most_bytes = most_bytes // 2
        self._header = header
        self._clock = clock
        self._size_of = size_of
        self._worlds = WorldWriter()
        self._mounted: frozenset[str] = frozenset()
        self._written = self._most_bytes
        self._has_failed = False

    def note_decision(self, world: World, plan: Plan) -> None:
        """The plan that is carried out, and all that it was made of."""
        for digest in sorted(self._mounted - world.mounted):
            self._write(write_happening(Happening(world.unix_now, "release", digest)))
        self._mounted = world.mounted
        self._rotate()
        try:
            line = self._worlds.write(self._clock(), world, plan)
        except CodecError:
            # A bug of the log must not become one of the agent.
            _log.exception("a decision is missing in the input log")
            self._worlds.forget()
            return
        if line is not None and not self._write(line):
            self._worlds.forget()

    def note_attach(self, digest: str, wait: Wait) -> None:
        """A pod's volume shows the content from now on."""
        # Pods may be gone before the next decision sees them: what was shown is released then.
        self._mounted |= {digest}
        size = self._size_of(digest)
        at = wait.asked_at + wait.seconds
        one = Happening(at, "attach", digest, size, waited_seconds=wait.seconds)
        self._write(write_happening(one))

    def note_load(self, digest: str, cost: LoadCost) -> None:
        """A transfer was measured."""
        one = Happening(
            self._clock(),
            "load",
            digest,
            self._size_of(digest),
            cost.start_seconds,
            cost.seconds_per_byte,
        )
        self._write(write_happening(one))

    def _rotate(self) -> None:
        """A new file says everything again, so that each can be replayed alone."""
        if self._written < self._most_bytes:
            return
        # Also if it fails now: the line that comes next may find the new file all the same.
        self._worlds.forget()
        try:
            self._current.parent.mkdir(exist_ok=True)
            if self._current.exists():
                self._current.replace(self._previous)
            self._current.write_text(write_header(self._header) + "\n", encoding="utf-8")
        except OSError as error:
            self._tell(error)
            return
        self._written = 0

    def _write(self, line: str) -> bool:
        if self._written >= self._most_bytes:
            self._rotate()
        data = f"{line}\n".encode()
        try:
            with self._current.open("ab") as file:
                file.write(data)
        except OSError as error:
            self._tell(error)
            self._written = self._most_bytes
            return False
        self._written += len(data)
        return True

    def _tell(self, error: OSError) -> None:
        if not self._has_failed:
            _log.warning("the input log cannot be written: %s", error.strerror)
        self._has_failed = True
