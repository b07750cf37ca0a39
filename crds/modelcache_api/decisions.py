"""What a node's agent decided of late, as it tells it and `kubectl modelcache why` reads it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from modelcache_api.names import Tier
from modelcache_api.v1alpha1.base import ApiModel, ByteCount

MOST_DECISIONS: Final = 50
PATH_DECISIONS: Final = "/decisions"


class DecisionKind(StrEnum):
    """What was decided."""

    EVICTED = "Evicted"
    PRESSURE_BEGAN = "PressureBegan"
    PRESSURE_ENDED = "PressureEnded"


class Decision(ApiModel):
    """One decision about a tier. `at` is in Unix seconds by the node's clock.

    Of an eviction: which content, for which ModelVersions (`uids`) it was held, the policy with its
    score and what the score was made of, and for what it went. Of pressure: how full it was.
    """

    at: Annotated[float, Field(ge=0)]
    kind: DecisionKind
    tier: Tier = Tier.DISK
    cause: str = ""
    digest: str | None = None
    uids: tuple[str, ...] = ()
    size_bytes: ByteCount = 0
    policy: str | None = None
    score: float | None = None
    inputs: str = ""


class Decisions(ApiModel):
    """The last decisions of a node, the newest first."""

    decisions: tuple[Decision, ...] = ()
