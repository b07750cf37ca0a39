"""Times as the API spells them."""

from __future__ import annotations

from datetime import UTC, datetime


def format_micro_time(moment: datetime) -> str:
    """A MicroTime, as Leases and Events carry it: `2026-01-31T12:00:00.000000Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc_now() -> datetime:
    """The wall clock, in UTC. The default of parameters, so that tests bring their own."""
    return datetime.now(tz=UTC)
