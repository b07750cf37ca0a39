"""ModelVersion: one immutable content and where it comes from."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from modelcache_api.markers import Column, ListType, Matches, Rule
from modelcache_api.v1alpha1.base import (
    DIGEST_PATTERN,
    ApiModel,
    ByteCount,
    Commit,
    Conditions,
    Count,
    Digest,
    Kind,
    ObjectName,
)

Glob = Annotated[str, Field(min_length=1, max_length=256)]
Globs = Annotated[tuple[Glob, ...], Field(max_length=64), ListType("atomic")]

_INTERVAL_PATTERN: Final = "^[0-9]{1,6}[smh]$"


class Addressing(StrEnum):
    """How a bucket is named in a request."""

    AUTO = "Auto"
    PATH = "Path"
    VIRTUAL = "Virtual"


class Checksums(StrEnum):
    """Which checksums of an S3 store are compared with the bytes."""

    WHEN_LISTED = "WhenListed"
    ASK = "Ask"
    IGNORE = "Ignore"


class OnSourceGone(StrEnum):
    """What becomes of verified copies once their source is gone."""

    KEEP = "Keep"
    DROP = "Drop"


class SourceIdentity(StrEnum):
    """What tells that a file of the source has changed."""

    VERSION_ID = "VersionId"
    ETAG = "ETag"
    MIXED = "Mixed"


class BundleKind(StrEnum):
    """Kinds of object that can carry a CA bundle."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - a kind's name


class CABundleRef(ApiModel):
    """Where the PEM bundle lies that signs the endpoint's certificate."""

    kind: Annotated[
        BundleKind, Field(description="ConfigMap or Secret, in the same namespace.")
    ] = BundleKind.CONFIG_MAP
    name: Annotated[ObjectName, Field(description="Name of the object.")]
    key: Annotated[str, Field(min_length=1, max_length=253, description="Key in its data.")] = (
        "ca.crt"
    )


class SecretRef(ApiModel):
    """A Secret of the same namespace."""

    name: Annotated[ObjectName, Field(description="Name of the Secret.")]


_BUCKET: Final = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?"
_HUB_NAME: Final = r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_REVISION: Final = r"[A-Za-z0-9_]([A-Za-z0-9._/+-]{0,253}[A-Za-z0-9_+-])?"
_REPOSITORY: Final = f"hf://{_HUB_NAME}(/{_HUB_NAME})?(@{_REVISION})?"


class Source(ApiModel):
    """The store or hub that holds the content. Only `uri` is part of the identity."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.endpoint) || !self.uri.startsWith('s3://')"
            " || self.endpoint.matches(r'^https?://[^/]*/?$')",
            "source.endpoint of s3:// must be without a path",
            ".endpoint",
        ),
        Rule(
            "!has(self.region) || self.uri.startsWith('s3://')",
            "source.region goes with s3:// only: remove it",
            ".region",
        ),
        Rule(
            "!has(self.addressing) || self.addressing == 'Auto' || self.uri.startsWith('s3://')",
            "source.addressing goes with s3:// only: remove it",
            ".addressing",
        ),
        Rule(
            "!has(self.checksums) || self.checksums == 'WhenListed'"
            " || self.uri.startsWith('s3://')",
            "source.checksums goes with s3:// only: remove it",
            ".checksums",
        ),
    )

    uri: Annotated[
        str,
        Field(
            max_length=1600,
            description=(
                "s3://bucket/prefix; s3://bucket/key for one object; or a model repository of the "
                "hub as hf://organisation/name@revision, where the revision is a branch (main, if "
                "there is none), a tag or a commit. Immutable."
            ),
        ),
        Matches(
            f"^({_BUCKET}|{_REPOSITORY})$",
            "source.uri must be s3://bucket/prefix or hf://organisation/name@revision",
        ),
        Rule(
            r"!self.matches(r'^(s3|hf)://.*(//|/\.{1,2}(/|$))')",
            "source.uri must have no empty, . or .. part",
        ),
        Rule(
            "!self.matches(r'^hf://(models|datasets|spaces|kernels|buckets)/')",
            "source.uri names a model repository as hf://organisation/name, and no other kind",
        ),
        Rule(
            r"!self.matches(r'^hf://[^@]*(--|\.\.|\.git(@|$))')",
            "source.uri: a name of the hub has no -- and no .. and does not end with .git",
        ),
        Rule(
            "!self.startsWith('oci://')",
            "source.uri: oci:// is not supported; copy the artifact's files into a bucket and name "
            "that by s3://",
        ),
        Rule("self == oldSelf", "source.uri is immutable: create a new ModelVersion instead"),
    ]
    endpoint: Annotated[
        str | None,
        Field(
            max_length=512,
            description=(
                "Address with its scheme: of an S3-compatible store, e.g. http://seaweed:8333, or "
                "of a mirror of the hub, which may have a path. Without it, AWS S3 of the region, "
                "or the public hub."
            ),
        ),
        Matches(
            r"^https?://[A-Za-z0-9._\[\]:-]+(/[A-Za-z0-9._~/-]*)?$",
            "source.endpoint must be http://host:port or https://host:port",
        ),
    ] = None
    region: Annotated[
        str | None,
        Field(max_length=64, description="Region used for signing s3://; us-east-1 if absent."),
        Matches(r"^[a-z0-9-]+$", "source.region must be the name of a region, e.g. us-east-1"),
    ] = None
    addressing: Annotated[
        Addressing,
        Field(
            description=(
                "For s3://: Path puts the bucket in the path, Virtual in the host name. "
                "Auto takes Path for a custom endpoint and Virtual for AWS."
            )
        ),
    ] = Addressing.AUTO
    checksums: Annotated[
        Checksums,
        Field(
            description=(
                "For s3://: which checksums of whole objects the first node's bytes are compared "
                "with. WhenListed: those that the store's listing announces. Ask: all objects are "
                "asked for one, which some stores refuse. Ignore: none. Immutable."
            )
        ),
        Rule("self == oldSelf", "source.checksums is immutable: create a new ModelVersion instead"),
    ] = Checksums.WHEN_LISTED
    ca_bundle_ref: Annotated[
        CABundleRef | None,
        Field(
            description=(
                "CA bundle for an https endpoint of a private CA, and for where it redirects to."
            )
        ),
    ] = None
    credentials_secret_ref: Annotated[
        SecretRef | None,
        Field(
            description=(
                "Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and optionally "
                "AWS_SESSION_TOKEN for s3://, with HF_TOKEN for hf://. Without it requests are "
                "anonymous."
            )
        ),
    ] = None
    recheck_interval: Annotated[
        str,
        Field(
            max_length=7,
            description=(
                "How often the source is listed again to see whether it is still the same, from "
                "10s to 720h. Not done while spec.digest, or a commit in the URI, pins the content."
            ),
        ),
        Matches(
            _INTERVAL_PATTERN,
            "source.recheckInterval must be a whole number of s, m or h, e.g. 24h",
        ),
        Rule(
            f"!self.matches(r'{_INTERVAL_PATTERN}')"
            " || (duration(self) >= duration('10s') && duration(self) <= duration('720h'))",
            "source.recheckInterval must be from 10s to 720h",
        ),
    ] = "24h"


class ModelVersionSpec(ApiModel):
    """One immutable content: what it is, where it comes from, which of its files are taken."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.include) == has(oldSelf.include)"
            " && (!has(self.include) || self.include == oldSelf.include)",
            "include is immutable: create a new ModelVersion instead",
            ".include",
        ),
        Rule(
            "has(self.exclude) == has(oldSelf.exclude)"
            " && (!has(self.exclude) || self.exclude == oldSelf.exclude)",
            "exclude is immutable: create a new ModelVersion instead",
            ".exclude",
        ),
        Rule(
            "!has(oldSelf.digest) || (has(self.digest) && self.digest == oldSelf.digest)",
            "digest can be set once and not changed: create a new ModelVersion instead",
            ".digest",
        ),
    )

    model: Annotated[
        str,
        Field(
            min_length=1,
            max_length=256,
            description="Id of the model, e.g. sentence-transformers/all-MiniLM-L6-v2. Immutable.",
        ),
        Matches(
            r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
            "model must be an id such as organisation/name: letters, digits, and . _ / -",
        ),
        Rule("self == oldSelf", "model is immutable: create a new ModelVersion instead"),
    ]
    source: Annotated[Source, Field(description="The store or hub that holds the content.")]
    include: Annotated[
        Globs | None,
        Field(
            description=(
                "Globs over paths below the prefix; a file is taken if one matches. "
                "`*` stays inside a folder, `**` does not. All files if absent; of hf:// all but "
                "those that repeat safetensors in another format. Immutable."
            )
        ),
    ] = None
    exclude: Annotated[
        Globs | None,
        Field(description="Globs of files to leave out, applied after include. Immutable."),
    ] = None
    digest: Annotated[
        Digest | None,
        Matches(DIGEST_PATTERN, "digest must be sha256: and 64 lower-case hex characters"),
        Field(
            description=(
                "Expected contentDigest (sha256:...). Pins the content; can be set once. "
                "Without it the first verified fetch is trusted."
            )
        ),
    ] = None
    on_source_gone: Annotated[
        OnSourceGone,
        Field(
            description=(
                "What becomes of copies once the source is gone: Keep leaves verified ones in "
                "service, Drop takes them from the nodes."
            )
        ),
    ] = OnSourceGone.KEEP


class NodeCounts(ApiModel):
    """On how many live nodes the version is verified, by fastest tier."""

    disk: Annotated[Count, Field(description="Nodes that hold it on disk.")] = 0


class ModelVersionStatus(ApiModel):
    """What the source was when resolved, and what is known of the content."""

    observed_generation: Annotated[
        int,
        Field(
            ge=0,
            description="Generation that this status was computed from.",
            json_schema_extra={"format": "int64"},
        ),
    ] = 0
    source_digest: Annotated[
        Digest | None, Field(description="Digest of the list of files when resolved.")
    ] = None
    source_revision: Annotated[
        Commit | None,
        Field(description="Commit that the revision of hf:// was when resolved; it stays."),
    ] = None
    source_identity: Annotated[
        SourceIdentity | None,
        Field(
            description=(
                "What tells a change of the source's files: VersionId, which a replaced file can "
                "still be read by; ETag, where the bucket keeps no versions or the credentials may "
                "not list them; or Mixed. Of hf://, VersionId stands for the blob's name in git."
            )
        ),
    ] = None
    content_digest: Annotated[
        Digest | None, Field(description="Digest of the bytes, adopted once.")
    ] = None
    content_manifest_digest: Annotated[
        Digest | None,
        Field(description="Digest of the stored content manifest, checked on every read."),
    ] = None
    size_bytes: Annotated[
        ByteCount | None, Field(description="Sum of the sizes of the selected files.")
    ] = None
    size: Annotated[str | None, Field(max_length=16, description="sizeBytes for people.")] = None
    files: Annotated[Count | None, Field(description="Number of selected files.")] = None
    last_check_time: Annotated[
        datetime | None,
        Field(
            description=(
                "A time at which the source answered and was as SourceCurrent says. Not written "
                "more than once an hour while nothing changes."
            )
        ),
    ] = None
    nodes: Annotated[
        NodeCounts | None, Field(description="Live nodes that hold a verified copy.")
    ] = None
    node_label_key: Annotated[
        str | None,
        Field(
            max_length=128,
            description="Label that nodes carry while the version is verified on them.",
        ),
    ] = None
    conditions: Annotated[
        Conditions,
        Field(
            description=(
                "Ready means that the source has been resolved, SourceCurrent that it is still "
                "the same."
            )
        ),
    ] = ()


class ModelVersion(Kind):
    """One immutable content of a model, and the store or hub it comes from."""

    plural: ClassVar[str] = "modelversions"
    short_names: ClassVar[tuple[str, ...]] = ("mver",)
    scope: ClassVar[str] = "Namespaced"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Model", ".spec.model", description="Id of the model."),
        Column("Size", ".status.size", description="Bytes of the selected files."),
        Column("Files", ".status.files", "integer", "Number of selected files."),
        Column("Nodes", ".status.nodes.disk", "integer", "Nodes with a verified copy."),
        Column(
            "Ready",
            '.status.conditions[?(@.type=="Ready")].status',
            description="True once resolved.",
        ),
        Column(
            "Status",
            '.status.conditions[?(@.type=="Ready")].reason',
            description="Why it is, or is not, ready.",
        ),
        Column("Digest", ".status.contentDigest", description="Content digest.", priority=1),
        Column("Source", ".spec.source.uri", description="Where it comes from.", priority=1),
        Column(
            "SourceState",
            '.status.conditions[?(@.type=="SourceCurrent")].reason',
            description="Resolved while the source is what it was; else why it is not.",
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

    spec: Annotated[ModelVersionSpec, Field(description="What the user wants.")]
    status: Annotated[
        ModelVersionStatus | None, Field(description="What the operator observed.")
    ] = None
