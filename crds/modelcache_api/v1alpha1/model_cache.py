"""ModelCache: where a model is held, and which version of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from modelcache_api.limits import MAX_FAILURES_SHOWN, MAX_HELD_VERSIONS, MAX_MESSAGE_LENGTH
from modelcache_api.markers import Column, IntOrString, ListType, Matches, Rule
from modelcache_api.names import Priority, Retention, Tier
from modelcache_api.v1alpha1.base import ApiModel, ByteCount, Conditions, Count, Digest, Kind, Name
from modelcache_api.v1alpha1.rollout import (
    CanarySpec,
    HeldVersion,
    RolloutSpec,
    RolloutStatus,
    TrafficStatus,
)

_LABEL_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY: Final = rf"^([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_LABEL_NAME}$"
_LABEL_KEY_RULES: Final = "a prefix of at most 253 characters and a name of at most 63"

LabelKey = Annotated[
    str,
    Field(min_length=1, max_length=317),
    Matches(_LABEL_KEY, f"key must be the key of a taint: {_LABEL_KEY_RULES}"),
]
LabelValue = Annotated[
    str,
    Field(max_length=63),
    Matches(
        rf"^({_LABEL_NAME})?$",
        "a label value has at most 63 letters, digits, and - _ . in between",
    ),
]


class TrackSpec(ApiModel):
    """Which version takes a track's traffic."""

    model_version: Annotated[
        Name, Field(description="Name of a ModelVersion in the same namespace.")
    ]


class TolerationOperator(StrEnum):
    """How a toleration's value is compared."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class TaintEffect(StrEnum):
    """Effects of node taints."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(ApiModel):
    """A taint that does not keep copies off a node; as in a pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.operator == 'Exists' || has(self.key)",
            "a toleration without a key needs operator Exists",
        ),
        Rule(
            "self.operator != 'Exists' || !has(self.value)",
            "a toleration with operator Exists takes no value",
        ),
    )

    key: Annotated[
        LabelKey | None, Field(description="Key of the taint; all taints if absent.")
    ] = None
    operator: Annotated[TolerationOperator, Field(description="Equal or Exists.")] = (
        TolerationOperator.EQUAL
    )
    value: Annotated[LabelValue | None, Field(description="Value of the taint.")] = None
    effect: Annotated[
        TaintEffect | None, Field(description="Effect of the taint; all effects if absent.")
    ] = None


class Placement(ApiModel):
    """On how many nodes, and on which."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "type(self.copies) != int || self.minReady <= int(self.copies)",
            "minReady must not be above copies",
            ".minReady",
        ),
    )

    copies: Annotated[
        int | Literal["All"],
        IntOrString(),
        Rule(
            "type(self) == int ? int(self) >= 1 && int(self) <= 5000 : string(self) == 'All'",
            "copies must be a number from 1 to 5000, or All",
        ),
        Field(
            description="Number of nodes that hold a verified copy; "
            "the word All takes every eligible node."
        ),
    ] = 1
    min_ready: Annotated[
        int,
        Field(
            ge=1,
            le=5000,
            description="Verified copies from which the ModelCache counts as Ready.",
            json_schema_extra={"format": "int32"},
        ),
    ] = 1
    node_selector: Annotated[
        dict[str, LabelValue] | None,
        Field(max_length=16, description="Labels that a node must carry."),
        Rule(
            f"self.all(key, key.matches(r'{_LABEL_KEY}'))",
            f"a key of nodeSelector must be a label key: {_LABEL_KEY_RULES}",
        ),
    ] = None
    tolerations: Annotated[
        tuple[Toleration, ...] | None,
        Field(max_length=16, description="Taints that do not keep copies off a node."),
        ListType("atomic"),
    ] = None


class ModelCacheSpec(ApiModel):
    """Where a model is held, and which version takes the traffic."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.canary) || self.canary.modelVersion != self.stable.modelVersion",
            "canary.modelVersion must not be stable.modelVersion: to promote a canary, make it "
            "stable and remove canary in one change",
            ".canary.modelVersion",
        ),
    )

    stable: Annotated[TrackSpec, Field(description="The version in service.")]
    canary: Annotated[
        CanarySpec | None,
        Field(description="A version that is held beside the stable one and takes a share."),
    ] = None
    rollout: Annotated[
        RolloutSpec | None,
        Field(description="How the weight moves and how long versions are held."),
    ] = None
    tier: Annotated[
        Tier,
        Field(
            description="Fastest tier that holds the copies: Disk, Host for the nodes' memory as "
            "well, or GPU (experimental) for the memory of their cards. New copies go only to "
            "nodes that have room in it."
        ),
    ] = Tier.DISK
    placement: Annotated[
        Placement, Field(description="On how many nodes, and on which.", validate_default=True)
    ] = Placement()
    priority: Annotated[
        Priority,
        Field(
            description="A copy makes no room for one of lower priority, and is fetched and placed "
            "before it: Low, Normal, or High, which a ModelCacheQuota must grant."
        ),
    ] = Priority.NORMAL
    retention: Annotated[
        Retention,
        Field(
            description="Cached: copies beyond minReady may be given up for others, and come back "
            "when a pod asks. Pinned: none is given up; a ModelCacheQuota must grant the bytes."
        ),
    ] = Retention.CACHED


class TrackStatus(ApiModel):
    """The version behind one track, as observed."""

    name: Annotated[str, Field(max_length=16, description="Name of the track: stable or canary.")]
    model_version: Annotated[str, Field(max_length=63, description="Name of the ModelVersion.")]
    uid: Annotated[str | None, Field(max_length=64, description="UID of the ModelVersion.")] = None
    content_digest: Annotated[Digest | None, Field(description="Digest of its bytes.")] = None
    node_label_key: Annotated[
        str | None,
        Field(max_length=128, description="Label of the nodes that hold it; for node affinity."),
    ] = None


class CopiesStatus(ApiModel):
    """Verified copies on live nodes."""

    wanted: Annotated[Count, Field(description="Copies that the spec asks for.")] = 0
    placed: Annotated[Count, Field(description="Nodes that have been chosen.")] = 0
    ready: Annotated[Count, Field(description="Chosen nodes with a verified copy.")] = 0
    in_tier: Annotated[
        Count, Field(description="Chosen nodes with a verified copy in spec.tier or a faster one.")
    ] = 0
    failed: Annotated[Count, Field(description="Chosen nodes that report a failure.")] = 0
    demanded: Annotated[
        Count, Field(description="Other nodes where pods read it, for the pods' life.")
    ] = 0


class Failure(ApiModel):
    """What one node reports."""

    node: Annotated[str, Field(max_length=253, description="Name of the node.")]
    reason: Annotated[str, Field(max_length=63, description="One CamelCase word.")]
    message: Annotated[
        str, Field(max_length=MAX_MESSAGE_LENGTH, description="One sentence with the cause.")
    ] = ""


class ModelCacheStatus(ApiModel):
    """Counts and a capped list of failures; never a list of all nodes."""

    observed_generation: Annotated[
        int,
        Field(
            ge=0,
            description="Generation that this status was computed from.",
            json_schema_extra={"format": "int64"},
        ),
    ] = 0
    tracks: Annotated[
        tuple[TrackStatus, ...],
        Field(max_length=2, description="The version behind each track."),
        ListType("map", ("name",)),
    ] = ()
    traffic: Annotated[
        TrafficStatus | None,
        Field(description="The weights in force; absent without a canary."),
    ] = None
    traffic_summary: Annotated[
        str | None, Field(max_length=8, description="stable/canary in percent, for people.")
    ] = None
    rollout: Annotated[
        RolloutStatus | None, Field(description="How far the canary is; absent without one.")
    ] = None
    held: Annotated[
        tuple[HeldVersion, ...],
        Field(
            max_length=MAX_HELD_VERSIONS,
            description="Versions that have left the spec and are still on nodes.",
        ),
        ListType("map", ("uid",)),
    ] = ()
    copies: Annotated[CopiesStatus | None, Field(description="Verified copies on live nodes.")] = (
        None
    )
    copies_summary: Annotated[
        str | None, Field(max_length=16, description="ready/wanted, for people.")
    ] = None
    progress: Annotated[
        str | None, Field(max_length=4, description="Share of the bytes in place, in tenths.")
    ] = None
    size_bytes: Annotated[ByteCount | None, Field(description="Bytes of one copy.")] = None
    size: Annotated[str | None, Field(max_length=16, description="sizeBytes for people.")] = None
    failures: Annotated[
        tuple[Failure, ...],
        Field(max_length=MAX_FAILURES_SHOWN, description="The first failures, by node name."),
        ListType("atomic"),
    ] = ()
    failures_omitted: Annotated[Count, Field(description="How many failures are not shown.")] = 0
    conditions: Annotated[
        Conditions, Field(description="Ready means at least minReady verified copies.")
    ] = ()


class ModelCache(Kind):
    """Where a model is held: the version, the number of copies, the nodes."""

    plural: ClassVar[str] = "modelcaches"
    short_names: ClassVar[tuple[str, ...]] = ("mcache",)
    scope: ClassVar[str] = "Namespaced"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Stable", ".spec.stable.modelVersion", description="The version in service."),
        Column("Canary", ".spec.canary.modelVersion", description="The version that is tried."),
        Column("Traffic", ".status.trafficSummary", description="Percent of stable/canary."),
        Column("Copies", ".status.copiesSummary", description="Verified copies of wanted."),
        Column("Tier", ".spec.tier", description="Fastest tier that copies are wanted in."),
        Column("Size", ".status.size", description="Bytes of one copy."),
        Column("Progress", ".status.progress", description="Share of the bytes in place."),
        Column(
            "Status",
            '.status.conditions[?(@.type=="Ready")].reason',
            description="Why it is, or is not, ready.",
        ),
        Column(
            "InTier",
            ".status.copies.inTier",
            "integer",
            "Verified copies in that tier.",
            priority=1,
        ),
        Column(
            "Ready",
            '.status.conditions[?(@.type=="Ready")].status',
            description="True from minReady verified copies.",
            priority=1,
        ),
        Column(
            "Message",
            '.status.conditions[?(@.type=="Ready")].message',
            description="Cause and cure.",
            priority=1,
        ),
        Column("Age", ".metadata.creationTimestamp", "date", "Time since creation."),
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.metadata.name.size() <= 63",
            "the name must be at most 63 characters: it is used as a label value",
        ),
    )

    spec: Annotated[ModelCacheSpec, Field(description="What the user wants.")]
    status: Annotated[ModelCacheStatus | None, Field(description="What the operator observed.")] = (
        None
    )
