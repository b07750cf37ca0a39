"""ModelCacheQuota: how much a namespace may hold, and what it may ask for."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from modelcache_api.markers import Column, Matches
from modelcache_api.names import Priority
from modelcache_api.v1alpha1.base import ApiModel, ByteCount, Conditions, Count, Kind

_QUANTITY: Final = r"^[0-9]{1,18}([.][0-9]{1,9})?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$"

Quantity = Annotated[
    str,
    Field(max_length=30),
    Matches(_QUANTITY, "must be bytes as a quantity in quotes or with a unit, e.g. 500Gi or 2Ti"),
]


class QuotaBytes(ApiModel):
    """Bytes of copies on all nodes together, by what they are of."""

    disk: Annotated[
        Quantity | None,
        Field(description="On disks: every copy is on one. No limit if absent."),
    ] = None
    host: Annotated[
        Quantity | None,
        Field(description="Of copies that are wanted in tier Host. No limit if absent."),
    ] = None
    gpu: Annotated[
        Quantity | None,
        Field(description="Of copies that are wanted in tier GPU. No limit if absent."),
    ] = None
    pinned: Annotated[
        Quantity | None,
        Field(description="Of copies with retention Pinned. None are granted if absent."),
    ] = None


class ModelCacheQuotaSpec(ApiModel):
    """What is granted. Where a namespace has several quotas, the strictest of each holds."""

    hard: Annotated[
        QuotaBytes, Field(description="The most bytes that copies may take.", validate_default=True)
    ] = QuotaBytes()
    max_priority: Annotated[
        Priority, Field(description="Highest spec.priority of ModelCaches.")
    ] = Priority.NORMAL
    all_nodes: Annotated[bool, Field(description="True if ModelCaches may have copies: All.")] = (
        False
    )


class QuotaUsage(ApiModel):
    """What ModelCaches of the namespace are charged now, in bytes."""

    disk_bytes: Annotated[ByteCount, Field(description="On disks.")] = 0
    host_bytes: Annotated[ByteCount, Field(description="In tier Host.")] = 0
    gpu_bytes: Annotated[ByteCount, Field(description="In tier GPU.")] = 0
    pinned_bytes: Annotated[ByteCount, Field(description="Of pinned copies.")] = 0


class ModelCacheQuotaStatus(ApiModel):
    """What is used of it."""

    observed_generation: Annotated[
        int,
        Field(
            ge=0,
            description="Generation that this status was computed from.",
            json_schema_extra={"format": "int64"},
        ),
    ] = 0
    used: Annotated[
        QuotaUsage | None,
        Field(description="Canaries, held versions, and what pods read elsewhere included."),
    ] = None
    disk: Annotated[
        str | None, Field(max_length=32, description="used/hard of disks, for people.")
    ] = None
    host: Annotated[
        str | None, Field(max_length=32, description="used/hard of tier Host, for people.")
    ] = None
    gpu: Annotated[
        str | None, Field(max_length=32, description="used/hard of tier GPU, for people.")
    ] = None
    pinned: Annotated[
        str | None, Field(max_length=32, description="used/hard of pinned copies, for people.")
    ] = None
    refused: Annotated[
        Count, Field(description="ModelCaches that get less than they want by the quota.")
    ] = 0
    conditions: Annotated[
        Conditions, Field(description="Ready means that no more is used than is granted.")
    ] = ()


class ModelCacheQuota(Kind):
    """How much ModelCaches of a namespace may hold on all nodes, and what they may ask for."""

    plural: ClassVar[str] = "modelcachequotas"
    short_names: ClassVar[tuple[str, ...]] = ("mquota",)
    scope: ClassVar[str] = "Namespaced"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Disk", ".status.disk", description="Used of granted, on disks."),
        Column("Host", ".status.host", description="Used of granted, in tier Host."),
        Column("GPU", ".status.gpu", description="Used of granted, in tier GPU."),
        Column("Pinned", ".status.pinned", description="Used of granted, of pinned copies."),
        Column("Priority", ".spec.maxPriority", description="The highest that is granted."),
        Column("All", ".spec.allNodes", "boolean", "Whether copies: All is granted."),
        Column("Refused", ".status.refused", "integer", "ModelCaches that get too little by it."),
        Column(
            "Status",
            '.status.conditions[?(@.type=="Ready")].reason',
            description="WithinQuota or QuotaExceeded.",
        ),
        Column("Age", ".metadata.creationTimestamp", "date", "Time since creation."),
    )

    spec: Annotated[ModelCacheQuotaSpec, Field(description="What is granted.")]
    status: Annotated[
        ModelCacheQuotaStatus | None, Field(description="What the operator observed.")
    ] = None
