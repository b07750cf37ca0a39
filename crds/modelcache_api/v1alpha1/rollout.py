"""How a ModelCache goes from one version to the next: what the user says, and what is in force."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from modelcache_api.limits import MAX_MESSAGE_LENGTH, MAX_ROLLOUT_STEPS
from modelcache_api.markers import ListType, Matches, Rule
from modelcache_api.v1alpha1.base import ApiModel, ByteCount, Count, Digest, Name

_DURATION: Final = "^[0-9]{1,6}[smh]$"

Percent = Annotated[int, Field(ge=0, le=100, json_schema_extra={"format": "int32"})]


def _duration_rules(field: str) -> tuple[Matches, Rule]:
    """From ten seconds to thirty days, as other durations of the group."""
    return (
        Matches(_DURATION, f"rollout.{field} must be a whole number of s, m or h, e.g. 1h"),
        Rule(
            f"!self.matches(r'{_DURATION}')"
            " || (duration(self) >= duration('10s') && duration(self) <= duration('720h'))",
            f"rollout.{field} must be from 10s to 720h",
        ),
    )


class OnFailure(StrEnum):
    """What becomes of the canary's traffic when the canary fails."""

    HOLD = "Hold"
    ROLLBACK = "Rollback"


class Residency(StrEnum):
    """On how many nodes of the stable version the canary is held."""

    FULL = "Full"
    PROPORTIONAL = "Proportional"


class CanarySpec(ApiModel):
    """The version that is tried beside the stable one."""

    model_version: Annotated[
        Name, Field(description="Name of a ModelVersion in the same namespace.")
    ]
    weight: Annotated[
        Percent,
        Field(
            description="Percent of the traffic that the canary is to take in the end. A lower "
            "weight is in force at once."
        ),
    ]


class RolloutSpec(ApiModel):
    """How the canary's weight moves, and for how long versions are held."""

    steps: Annotated[
        tuple[Annotated[int, Field(ge=1, le=100, json_schema_extra={"format": "int32"})], ...]
        | None,
        Field(
            max_length=MAX_ROLLOUT_STEPS,
            description="Weights on the way to canary.weight, ascending; those not below it are "
            "left out. Without steps it is reached in one.",
        ),
        ListType("atomic"),
        Rule(
            "self.isSorted() && self.all(step, self.exists_one(other, other == step))",
            "rollout.steps must ascend, e.g. [5, 25, 50]",
        ),
    ] = None
    interval: Annotated[
        str,
        Field(
            max_length=7,
            description="Shortest time between two steps of the weight, from 10s to 720h.",
        ),
        *_duration_rules("interval"),
    ] = "5m"
    on_failure: Annotated[
        OnFailure,
        Field(
            description="Hold keeps the weight where it is, Rollback takes it to 0 until the "
            "canary is changed. What no verified copy is left of gets no traffic in either case."
        ),
    ] = OnFailure.HOLD
    hold_for: Annotated[
        str,
        Field(
            max_length=7,
            description="How long the bytes of a version that has left the spec stay on their "
            "nodes, from 10s to 720h. Going back within that time reads no byte.",
        ),
        *_duration_rules("holdFor"),
    ] = "1h"
    deadline: Annotated[
        str,
        Field(
            max_length=7,
            description="After this time the traffic of a canary that nobody promoted or changed "
            "goes back to stable, from 10s to 720h.",
        ),
        *_duration_rules("deadline"),
    ] = "24h"
    residency: Annotated[
        Residency,
        Field(
            description="Full: on all nodes of the stable version. Proportional: on "
            "max(1, ceil(weight * copies)) of them."
        ),
    ] = Residency.FULL


class TrafficStatus(ApiModel):
    """The weights in force, in percent. They add up to 100."""

    stable: Annotated[Percent, Field(description="Percent of the stable version.")]
    canary: Annotated[Percent, Field(description="Percent of the canary.")]


class RolloutStatus(ApiModel):
    """How far the canary is. It outlives the operator, and belongs to one wish of the user."""

    canary_uid: Annotated[str, Field(max_length=64, description="UID of the ModelVersion.")]
    model_version: Annotated[str, Field(max_length=63, description="Its name.")] = ""
    aim: Annotated[Percent, Field(description="The weight that was asked for.")]
    started_at: Annotated[datetime, Field(description="When this wish was first seen.")]
    moved_at: Annotated[
        datetime | None, Field(description="When the weight last moved; absent before it did.")
    ] = None
    ended: Annotated[
        str | None,
        Field(
            max_length=63,
            description="Why the traffic went back to stable for good, in one word. It ends with "
            "the next change of the canary.",
        ),
    ] = None
    ended_message: Annotated[
        str | None, Field(max_length=MAX_MESSAGE_LENGTH, description="The same in one sentence.")
    ] = None
    copies: Annotated[Count, Field(description="Copies of the canary that are wanted.")] = 0
    copies_ready: Annotated[Count, Field(description="Those of them that are verified.")] = 0
    extra_bytes: Annotated[
        ByteCount, Field(description="Bytes that the canary takes beside the stable version.")
    ] = 0


class HeldVersion(ApiModel):
    """A version that has left the spec, and whose verified bytes stay for a while."""

    uid: Annotated[str, Field(max_length=64, description="UID of the ModelVersion.")]
    model_version: Annotated[
        str | None, Field(max_length=63, description="Its name, while it exists.")
    ] = None
    digest: Annotated[Digest | None, Field(description="Digest of its bytes.")] = None
    until: Annotated[datetime, Field(description="When its bytes go.")]
    copies: Annotated[Count, Field(description="Nodes where its bytes are held.")] = 0
    pods: Annotated[
        Count, Field(description="Volumes of live pods on these nodes that still show it.")
    ] = 0
