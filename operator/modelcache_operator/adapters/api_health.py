"""When the API server was last heard, and when it has come back."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

# Shorter failures lose no watch for longer than its own reconnection covers.
_OUTAGE_SECONDS: Final = 3.0


class ApiHealth:
    """Fed with the code of each answer; calls `on_return` after an outage is over.

    Nothing heard for `longest_pause_seconds` is an outage too, with or without a failed request:
    a process that was suspended missed what happened and has no failure to show for it.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        on_return: Callable[[], None],
        *,
        longest_pause_seconds: float,
    ) -> None:
        self._monotonic = monotonic
        self._on_return = on_return
        self._longest_pause_seconds = longest_pause_seconds
        self._heard_at = monotonic()
        self._failing_since: float | None = None

    def note(self, code: int) -> None:
        """One answer; code 0 is none."""
        now = self._monotonic()
        if code == 0 or code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            if self._failing_since is None:
                self._failing_since = now
            return
        if code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return
        was_out = now - self._heard_at > self._longest_pause_seconds or (
            self._failing_since is not None and now - self._failing_since > _OUTAGE_SECONDS
        )
        self._failing_since = None
        self._heard_at = now
        if was_out:
            self._on_return()

    @property
    def silent_seconds(self) -> float:
        """Since the last answer that was one."""
        return self._monotonic() - self._heard_at
