"""CacheNode: what one node should hold, and what its agent reports."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from modelcache_api.limits import (
    MAX_ENTRIES_PER_NODE,
    MAX_HELD_VERSIONS,
    MAX_MESSAGE_LENGTH,
    MAX_SUSPECTS,
)
from modelcache_api.markers import Column, ListType, Rule
from modelcache_api.names import EntryOrigin, EntryState, Priority, Tier
from modelcache_api.v1alpha1.base import (
    ApiModel,
    ByteCount,
    Commit,
    Conditions,
    Count,
    Digest,
    Kind,
    Name,
)

IP_PATTERN = r"^[0-9A-Fa-f:.]+$"
Uid = Annotated[str, Field(min_length=1, max_length=64)]


class EntrySpec(ApiModel):
    """One version that the node should hold."""

    uid: Annotated[Uid, Field(description="UID of the ModelVersion.")]
    source_digest: Annotated[Digest, Field(description="The source manifest to fetch.")]
    content_digest: Annotated[
        Digest | None, Field(description="The content manifest, once known.")
    ] = None
    label_key: Annotated[
        str | None,
        Field(max_length=128, description="Label to set while the version is verified here."),
    ] = None
    tier: Annotated[Tier, Field(description="Fastest tier to hold it in.")] = Tier.DISK
    size_bytes: Annotated[ByteCount, Field(description="Bytes to reserve before the first one.")]
    name: Annotated[
        Name | None,
        Field(
            description="Name of the ModelVersion, under which a pod's volume shows it beside "
            "others."
        ),
    ] = None
    model: Annotated[
        str | None,
        Field(
            max_length=256,
            description="Id of the model, under which a pod's volume shows it as the hub does.",
        ),
    ] = None
    revision: Annotated[
        Commit | None,
        Field(
            description="Commit of the hub that the files are of: the name of the snapshot that a "
            "pod's volume shows."
        ),
    ] = None
    evictable: Annotated[
        bool,
        Field(
            description="True if the agent may evict this copy to make room: "
            "enough other copies are ready."
        ),
    ] = False
    priority: Annotated[
        Priority,
        Field(
            description="Highest of the ModelCaches that want it: it gives way to none that is "
            "lower, and is fetched before it."
        ),
    ] = Priority.NORMAL
    pinned: Annotated[
        bool,
        Field(description="True if a ModelCache pins it: it comes back whatever happens to it."),
    ] = False
    over_quota: Annotated[
        bool,
        Field(
            description="True if every namespace that wants it uses more than its quota: it is not "
            "fetched, and gives way first if it is evictable."
        ),
    ] = False
    origin: Annotated[
        EntryOrigin,
        Field(
            description="Placement: a ModelCache is placed here. Demand: a pod on the node reads "
            "it, and the entry goes with the pod. Hold: it has left the spec of its ModelCache, "
            "stays for a while, and is not fetched."
        ),
    ] = EntryOrigin.PLACEMENT


class CacheRef(ApiModel):
    """A ModelCache that has versions on the node."""

    namespace: Annotated[Name, Field(description="Namespace of the ModelCache.")]
    name: Annotated[Name, Field(description="Name of the ModelCache.")]
    stable_uid: Annotated[Uid, Field(description="UID of its stable ModelVersion.")]
    origin: Annotated[
        EntryOrigin,
        Field(
            description="Of the stable version: whether it is placed here, asked for by a pod, or "
            "(Hold) not wanted here while other versions are."
        ),
    ] = EntryOrigin.PLACEMENT
    canary_uid: Annotated[
        Uid | None, Field(description="UID of its canary, where the node is to hold it.")
    ] = None
    canary_weight: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="Percent of the traffic that the canary takes now.",
            json_schema_extra={"format": "int32"},
        ),
    ] = 0
    held_uids: Annotated[
        tuple[Uid, ...],
        Field(
            max_length=MAX_HELD_VERSIONS,
            description="UIDs of versions that have left its spec and are held here.",
        ),
        ListType("atomic"),
    ] = ()


class CacheNodeSpec(ApiModel):
    """What the node should hold. Written by the operator alone."""

    node_uid: Annotated[
        Uid,
        Field(description="UID of the Node; a rebuilt node of the same name starts clean."),
        Rule("self == oldSelf", "nodeUid is immutable: a rebuilt node gets a new CacheNode"),
    ]
    entries: Annotated[
        tuple[EntrySpec, ...],
        Field(max_length=MAX_ENTRIES_PER_NODE, description="The versions to hold."),
        ListType("atomic"),
    ] = ()
    caches: Annotated[
        tuple[CacheRef, ...],
        Field(max_length=MAX_ENTRIES_PER_NODE, description="The ModelCaches placed here."),
        ListType("atomic"),
    ] = ()

    def find_entry(self, uid: str) -> EntrySpec | None:
        """The entry of that ModelVersion."""
        return next((entry for entry in self.entries if entry.uid == uid), None)


class TierStatus(ApiModel):
    """One tier's book, in bytes."""

    name: Annotated[Tier, Field(description="The tier.")]
    capacity_bytes: Annotated[ByteCount, Field(description="Bytes the cache may use.")]
    used_bytes: Annotated[ByteCount, Field(description="Bytes in use, partial files included.")]
    reserved_bytes: Annotated[ByteCount, Field(description="Bytes promised to transfers.")] = 0
    pending_release_bytes: Annotated[
        ByteCount, Field(description="Bytes given up that readers still hold open.")
    ] = 0
    pressure: Annotated[
        str | None,
        Field(
            max_length=MAX_MESSAGE_LENGTH,
            description="Why nothing is fetched now; absent while there is room by the watermarks.",
        ),
    ] = None


class CacheKey(ApiModel):
    """A ModelCache by namespace and name; it need not exist."""

    namespace: Annotated[Name, Field(description="Namespace of the ModelCache.")]
    name: Annotated[Name, Field(description="Name of the ModelCache.")]


class CanaryPod(ApiModel):
    """A pod that asked for a canary, and what it was given for its life."""

    uid: Annotated[Uid, Field(description="UID of the pod, as the kubelet states it.")]
    version: Annotated[Uid, Field(description="UID of the ModelVersion that its volume shows.")]


class EntryStatus(ApiModel):
    """How far the agent is with one version."""

    uid: Annotated[Uid, Field(description="UID of the ModelVersion.")]
    state: Annotated[EntryState, Field(description="Pending to Cached, Failed or Evicted.")]
    content_digest: Annotated[Digest | None, Field(description="Digest of the bytes here.")] = None
    tier: Annotated[Tier | None, Field(description="Tier that holds verified bytes.")] = None
    progress_percent: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="Share of the bytes in place, in tenths.",
            json_schema_extra={"format": "int32"},
        ),
    ] = 0
    reason: Annotated[str, Field(max_length=63, description="One CamelCase word.")] = ""
    message: Annotated[
        str, Field(max_length=MAX_MESSAGE_LENGTH, description="One sentence; never a URL.")
    ] = ""
    mounts: Annotated[
        Count | None,
        Field(
            description="Volumes of live pods whose own version it is, or whose processes use it."
        ),
    ] = None


class PeerStatus(ApiModel):
    """Where other agents reach this one. The certificate, not this, says who it is."""

    address: Annotated[
        str, Field(min_length=2, max_length=45, pattern=IP_PATTERN, description="An IP address.")
    ]
    port: Annotated[
        int,
        Field(ge=1, le=65535, description="A port.", json_schema_extra={"format": "int32"}),
    ]
    suspects: Annotated[
        tuple[Uid, ...],
        Field(
            max_length=MAX_SUSPECTS,
            description="UIDs of Nodes whose agents served wrong bytes to this one.",
        ),
        ListType("atomic"),
    ] = ()


class CacheNodeStatus(ApiModel):
    """What the node holds. Written by the node's agent; the Ready condition by the operator."""

    agent_version: Annotated[
        str | None, Field(max_length=64, description="Version of the agent.")
    ] = None
    tiers: Annotated[
        tuple[TierStatus, ...],
        Field(max_length=3, description="The book of each tier."),
        ListType("map", ("name",)),
    ] = ()
    entries: Annotated[
        tuple[EntryStatus, ...],
        Field(max_length=2 * MAX_ENTRIES_PER_NODE, description="The versions held or fetched."),
        # There is one writer: to say who owns which field of each entry would double each write.
        ListType("atomic"),
    ] = ()
    demands: Annotated[
        tuple[CacheKey, ...],
        Field(
            max_length=MAX_ENTRIES_PER_NODE,
            description=(
                "ModelCaches that volumes of live pods on the node ask for, placed here or not. "
                "The namespace is the pod's, as the kubelet states it."
            ),
        ),
        ListType("atomic"),
    ] = ()
    canary_pods: Annotated[
        tuple[CanaryPod, ...],
        Field(
            max_length=MAX_ENTRIES_PER_NODE,
            description=(
                "Live pods whose volumes asked for a canary, with the version that each shows: the "
                "canary of the moment when it was complete."
            ),
        ),
        ListType("atomic"),
    ] = ()
    disk_summary: Annotated[
        str | None, Field(max_length=32, description="used/capacity of the disk, for people.")
    ] = None
    host_summary: Annotated[
        str | None,
        Field(
            max_length=32,
            description="used/capacity of locked host memory, for people; `unfit` where the node "
            "cannot lock; absent where the tier is off.",
        ),
    ] = None
    host_unfit: Annotated[
        str | None,
        Field(
            max_length=MAX_MESSAGE_LENGTH,
            description="Why the node cannot lock models in memory, though it was given a host "
            "capacity; absent where it can, or was given none.",
        ),
    ] = None
    gpu_summary: Annotated[
        str | None,
        Field(
            max_length=32,
            description="used/capacity of GPU memory (experimental), for people, with the word "
            "`emulated` where no card is behind it; `unavailable` while the card cannot be used; "
            "absent where the tier is off.",
        ),
    ] = None
    models: Annotated[Count | None, Field(description="Verified versions.")] = None
    failed: Annotated[Count | None, Field(description="Versions that cannot be held.")] = None
    peer: Annotated[
        PeerStatus | None,
        Field(description="Where other agents read from this one; absent if it does not serve."),
    ] = None
    conditions: Annotated[
        Conditions,
        Field(description="Ready means that the agent is alive; reason Damaged: disk damage."),
    ] = ()


class CacheNode(Kind):
    """One node's share of the cache. Created by the operator, owned by the Node."""

    plural: ClassVar[str] = "cachenodes"
    short_names: ClassVar[tuple[str, ...]] = ("cnode",)
    scope: ClassVar[str] = "Cluster"
    columns: ClassVar[tuple[Column, ...]] = (
        Column(
            "Ready",
            '.status.conditions[?(@.type=="Ready")].status',
            description="True while the agent is alive.",
        ),
        Column(
            "Status",
            '.status.conditions[?(@.type=="Ready")].reason',
            description="AgentAlive, or what is wrong.",
        ),
        Column("Disk", ".status.diskSummary", description="Used of capacity."),
        Column("Host", ".status.hostSummary", description="Locked memory, used of capacity."),
        Column("GPU", ".status.gpuSummary", description="GPU memory, used of capacity."),
        Column("Models", ".status.models", "integer", "Verified versions."),
        Column("Failed", ".status.failed", "integer", "Versions that cannot be held."),
        Column("Agent", ".status.agentVersion", description="Version of the agent."),
        Column("Age", ".metadata.creationTimestamp", "date", "Time since creation."),
    )

    spec: Annotated[CacheNodeSpec, Field(description="What the node should hold.")]
    status: Annotated[CacheNodeStatus | None, Field(description="What the node holds.")] = None
