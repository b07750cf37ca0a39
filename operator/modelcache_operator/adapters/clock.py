"""The machine's clocks."""

from __future__ import annotations

from datetime import UTC, datetime

from modelcache_kube import boot_seconds


class SystemClock:
    """Real time."""

    def now(self) -> datetime:
        """The wall clock in UTC, in whole seconds."""
        return datetime.now(tz=UTC).replace(microsecond=0)

    def monotonic(self) -> float:
        """Seconds that never go back, and go on while the machine is suspended."""
        return boot_seconds()
