"""What is measured of loads and attaches, in fixed words: they become labels of metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from modelcache_agent.decide.history import NOT_MEASURED
from modelcache_api.names import Tier

if TYPE_CHECKING:
    from modelcache_agent.decide.history import History


class LoadSource(StrEnum):
    """Where the bytes of a load came from."""

    ORIGIN = "origin"
    PEERS = "peers"
    MIXED = "mixed"
    """Some from the model's source, some from other nodes."""

    HERE = "here"
    """All of them lay on this disk already, in other versions or an adopted tree."""

    DISK = "disk"
    """Of faster tiers, which read this disk."""


class EvictionCause(StrEnum):
    """Why a content had to give way."""

    ROOM = "room"
    """A newcomer needed its bytes."""

    PRESSURE = "pressure"
    """Others than this cache took the disk or the memory."""

    SHRUNK = "shrunk"
    """The capacity was lowered."""

    ASKED = "asked"
    """Somebody asked the node to let it go."""


@dataclass(frozen=True, slots=True)
class Attach:
    """A pod's volume shows a content from now on.

    `found` is the fastest tier that held all of it when the pod asked; None: the pod waited for it.
    `seconds` went by from when the kubelet asked until the folder was there.
    `saved_seconds` are those that bringing it here would have taken, as it was measured; 0 if it
    never was.
    """

    wanted: Tier
    found: Tier | None
    size_bytes: int
    seconds: float
    saved_seconds: float

    @property
    def is_hit(self) -> bool:
        """True if the pod found it on the node."""
        return self.found is not None

    def list_tiers(self) -> Iterator[tuple[Tier, bool]]:
        """Each tier that the version is wanted in, and whether the pod found it there."""
        for tier in Tier:
            if tier.speed <= self.wanted.speed:
                yield tier, self.found is not None and tier.speed <= self.found.speed


def judge_attach(
    history: History,
    *,
    asked_at: float,
    now: float,
    size_bytes: int,
    wanted: Tier,
    held_in: Tier,
) -> Attach:
    """A hit if the content had arrived before the pod asked (all in Unix seconds)."""
    is_hit = history.arrived <= asked_at
    was_measured = history.load != NOT_MEASURED
    return Attach(
        wanted=wanted,
        found=held_in if is_hit else None,
        size_bytes=size_bytes,
        seconds=max(0.0, now - asked_at),
        saved_seconds=history.load.seconds(size_bytes) if is_hit and was_measured else 0.0,
    )
