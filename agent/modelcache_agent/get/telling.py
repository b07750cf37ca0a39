"""The lines of `modelcache-agent get`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from modelcache_agent.fetch import Progress
from modelcache_api.names import EntryState, Reason, VolumeState
from modelcache_api.volume_progress import (
    VolumeProgress,
    describe_progress,
    format_progress_line,
)

_LEAST_SECONDS: Final = 2.0
# A log that says nothing looks hung.
_REMIND_SECONDS: Final = 30.0


class Teller:
    """Says how far it is, not too often; knows how long nothing has moved."""

    def __init__(
        self, name: str, monotonic: Callable[[], float], print_line: Callable[[str], None]
    ) -> None:
        self._name = name
        self._monotonic = monotonic
        self._print_line = print_line
        self._began = self._moved_at = monotonic()
        self._told = ""
        self._told_at = 0.0
        self._verified = -1

    def say(self, text: str) -> None:
        """Now, in a line of its own."""
        self._told, self._told_at = text, self._monotonic()
        self._print_line(format_progress_line(self._told_at - self._began, f"{self._name} {text}"))

    def say_waiting(self, text: str) -> None:
        """The same again only after a while."""
        if text != self._told or self._monotonic() - self._told_at >= _REMIND_SECONDS:
            self.say(text)

    def on_progress(self, progress: Progress) -> None:
        """Called by the engine a few times a second."""
        now = self._monotonic()
        if progress.verified_bytes != self._verified:
            self._verified, self._moved_at = progress.verified_bytes, now
        percent = 100 * progress.verified_bytes // max(progress.total_bytes, 1)
        text = describe_progress(
            VolumeProgress(
                self._name,
                VolumeState.DOWNLOADING,
                Reason.DOWNLOADING,
                percent=percent,
                size_bytes=progress.total_bytes,
            )
        ).removeprefix(f"{self._name} ")
        if now - self._told_at >= (_REMIND_SECONDS if text == self._told else _LEAST_SECONDS):
            self.say(text)

    def on_state(self, _state: EntryState, _message: str) -> None:
        """Only agents that wait for each other have states to tell."""

    def note_progress(self) -> None:
        """Something has moved that is no byte."""
        self._moved_at = self._monotonic()

    @property
    def idle_seconds(self) -> float:
        """Since something has moved."""
        return self._monotonic() - self._moved_at
