"""How a ModelCache goes from one version to the next: what the user says, and what is in force."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from modelcache_api.limits import MAX_MESSAGE_LENGTH, MAX_QUERY_LENGTH, MAX_ROLLOUT_STEPS
from modelcache_api.markers import ListType, Matches, Rule
from modelcache_api.v1alpha1.base import ApiModel, ByteCount, Count, Digest, Name, ObjectName

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


class Comparison(StrEnum):
    """How the number of a gate's query must compare with its threshold."""

    BELOW = "Below"
    AT_MOST = "AtMost"
    AT_LEAST = "AtLeast"
    ABOVE = "Above"


class FirstStep(StrEnum):
    """Whether a gate is asked before the canary takes any traffic."""

    GATED = "Gated"
    FREE = "Free"


class GateSpec(ApiModel):
    """A number of Prometheus that must be right before the weight goes up."""

    query: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MAX_QUERY_LENGTH,
            description="PromQL that gives one number: a scalar, or a vector of one sample. Asked "
            "of the server that the chart's rollouts.prometheus names.",
        ),
    ]
    comparison: Annotated[
        Comparison, Field(description="How the number must compare with threshold.")
    ]
    threshold: Annotated[
        str,
        Field(max_length=24, description="A decimal number in quotes, e.g. '0.01'."),
        Matches(
            r"^-?[0-9]{1,12}([.][0-9]{1,9})?$",
            "rollout.gate.threshold must be a decimal number in quotes, e.g. '0.01'",
        ),
    ]
    interval: Annotated[
        str,
        Field(max_length=7, description="How often the query is asked during a rollout, from 10s."),
        *_duration_rules("gate.interval"),
    ] = "1m"
    first_step: Annotated[
        FirstStep,
        Field(
            description="Gated: the query must hold before the canary takes any traffic, too. "
            "Free: the first step is taken without it, for queries that only traffic answers."
        ),
    ] = FirstStep.GATED


class HttpRouteRef(ApiModel):
    """An HTTPRoute whose weights follow the weight in force."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.stableService != self.canaryService",
            "canaryService must not be stableService: each selects the pods of one track",
            ".canaryService",
        ),
    )

    name: Annotated[
        ObjectName,
        Field(
            description="Name of an HTTPRoute (gateway.networking.k8s.io/v1) in the same namespace."
        ),
    ]
    stable_service: Annotated[
        Name, Field(description="The Service among its backends that takes stable's share.")
    ]
    canary_service: Annotated[
        Name, Field(description="The Service among its backends that takes the canary's share.")
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
            "goes back to stable, from 10s to 720h. A version whose hold is over waits as long for "
            "pods that still use it.",
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
    gate: Annotated[
        GateSpec | None,
        Field(
            description="A number that must be right before each step. While the canary takes "
            "traffic, a wrong one is a failure (onFailure); no number is none: the weight waits."
        ),
    ] = None
    http_route_ref: Annotated[
        HttpRouteRef | None,
        Field(
            description="The weight in force is written into this HTTPRoute, and nothing else of "
            "it is."
        ),
    ] = None


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
        Count,
        Field(
            description="Volumes of live pods on these nodes whose own version it is, or whose "
            "processes use it."
        ),
    ] = 0
