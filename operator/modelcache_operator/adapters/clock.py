"""The machine's clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """Real time."""

    def now(self) -> datetime:
        """The wall clock in UTC, in whole seconds."""
        return datetime.now(tz=UTC).replace(microsecond=0)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()
