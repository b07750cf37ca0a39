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
)
from modelcache_api.v1alpha1.source import Source

Glob = Annotated[str, Field(min_length=1, max_length=256)]
Globs = Annotated[tuple[Glob, ...], Field(max_length=64), ListType("atomic")]

# A part of a path, or a path below a folder.
_PART: Final = r"[^/\\]+"
Listed = Annotated[
    str,
    Field(min_length=1, max_length=256),
    Matches(
        f"^{_PART}(/{_PART})*$",
        "files must be paths below source.uri, such as config.json or 1_Pooling/config.json",
    ),
    Rule(r"!self.matches(r'(^|/)\.{1,2}(/|$)')", "files must have no . or .. part"),
]


class OnSourceGone(StrEnum):
    """What becomes of verified copies once their source is gone."""

    KEEP = "Keep"
    DROP = "Drop"


class SourceIdentity(StrEnum):
    """What tells that a file of the source has changed."""

    VERSION_ID = "VersionId"
    ETAG = "ETag"
    LAST_MODIFIED = "LastModified"
    MIXED = "Mixed"


def _immutable(field: str) -> Rule:
    return Rule(
        f"has(self.{field}) == has(oldSelf.{field})"
        f" && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        f"{field} is immutable: create a new ModelVersion instead",
        f".{field}",
    )


def _of_a_web_folder(field: str) -> Rule:
    return Rule(
        f"!has(self.{field}) || self.source.uri.matches(r'^https?://.*/$')",
        f"{field} goes with a folder of https:// only: end source.uri with a slash, or remove it",
        f".{field}",
    )


class Load(ApiModel):
    """Which tensors of the content are taken."""

    include: Annotated[
        tuple[Glob, ...],
        Field(
            min_length=1,
            max_length=64,
            description=(
                "Globs over whole names of tensors; a tensor is taken if one matches, and each "
                "must match one. `*` stands for anything, dots included."
            ),
        ),
        ListType("atomic"),
    ]


class ModelVersionSpec(ApiModel):
    """One immutable content: what it is, where it comes from, which of its files are taken."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _immutable("include"),
        _immutable("exclude"),
        _immutable("files"),
        _immutable("checksumFile"),
        _immutable("load"),
        _of_a_web_folder("files"),
        _of_a_web_folder("checksumFile"),
        Rule(
            "!has(self.files) || !has(self.checksumFile)",
            "files and checksumFile both say which files there are: remove one of them",
            ".checksumFile",
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
    source: Annotated[Source, Field(description="Where the content comes from.")]
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
    checksum_file: Annotated[
        str | None,
        Field(
            max_length=255,
            description=(
                "Of a folder of https://: the name of the file in it that lists its files as lines "
                "of sha256 and path; SHA256SUMS if absent. Each node checks the bytes against it. "
                "Immutable."
            ),
        ),
        Matches(
            f"^{_PART}$", "checksumFile must be the name of a file in the folder of source.uri"
        ),
        Rule("self != '.' && self != '..'", "checksumFile must be the name of a file"),
    ] = None
    files: Annotated[
        tuple[Listed, ...] | None,
        Field(
            min_length=1,
            max_length=256,
            description=(
                "Of a folder of https:// without checksums: the files to take, as paths below it. "
                "A *.safetensors.index.json brings the shards that it names. Immutable."
            ),
        ),
        ListType("atomic"),
    ] = None
    load: Annotated[
        Load | None,
        Field(
            description=(
                "Take only some tensors: of each safetensors file a smaller one is made that holds "
                "those, files without any are left out, all other files are taken whole. All "
                "tensors if absent. Immutable."
            )
        ),
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
    """On how many live nodes the version is verified; those of a tier count in all slower ones."""

    disk: Annotated[Count, Field(description="Nodes that hold it on disk.")] = 0
    host: Annotated[Count, Field(description="Nodes that hold it in their memory as well.")] = 0
    gpu: Annotated[Count, Field(description="Nodes that hold it in GPU memory as well.")] = 0


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
                "not list them; LastModified, where a web server has no strong ETag; or Mixed. "
                "VersionId stands for the blob's name in git with hf://, and with https:// for the "
                "listed sha256 of files that have nothing else."
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
    """One immutable content of a model, and where it comes from."""

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
