"""What agent and operator say to each other over HTTPS. Unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from modelcache_api.limits import MAX_ENTRIES_PER_NODE, MAX_FILES, MAX_MESSAGE_LENGTH
from modelcache_api.manifest import PIECE_BYTES
from modelcache_api.v1alpha1.base import ApiModel, ByteCount, Digest

MAX_PAGE_FILES = 500

Uid = Annotated[str, Field(min_length=1, max_length=64)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Path = Annotated[str, Field(min_length=1, max_length=4096)]


class GrantQuery(ApiModel):
    """One page of one entry's files, in the order of the source manifest."""

    uid: Uid
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_FILES)] = MAX_PAGE_FILES


class GrantRequest(ApiModel):
    """`POST /v1/grants`: entries of the caller's own CacheNode."""

    entries: Annotated[tuple[GrantQuery, ...], Field(min_length=1, max_length=MAX_ENTRIES_PER_NODE)]


class GrantedFile(ApiModel):
    """Leave to read one file until `expires_at`.

    `url` is a bearer secret: it never enters a log, a status or a metric. A path in its place names
    a file that the operator hands over itself, read with the agent's own token. `sha256` is there
    if the source states it or the content is known, `pieces` (blake3 of each PIECE_BYTES) once the
    content is known. `ca_bundle` (PEM) takes the place of the grant's for this file.
    """

    path: Path
    size_bytes: ByteCount
    etag: str | None = None
    version_id: str | None = None
    url: str = Field(repr=False)
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    expires_at: Annotated[float, Field(description="Unix seconds.")]
    sha256: Sha256 | None = None
    pieces: tuple[Sha256, ...] = ()
    ca_bundle: str | None = Field(default=None, repr=False)


class WireError(ApiModel):
    """A refusal: one Reason word and one sentence.

    `NotKnownYet` says that this replica has not seen the entry, or the node; others may have. To
    whoever does not know a word it is `GrantRefused`.
    """

    reason: Annotated[str, Field(max_length=63)]
    message: Annotated[str, Field(max_length=MAX_MESSAGE_LENGTH)] = ""


class Grant(ApiModel):
    """One page of an entry, or the reason why there is none."""

    uid: Uid
    source_digest: Digest | None = None
    content_digest: Digest | None = None
    total_files: Annotated[int, Field(ge=0, le=MAX_FILES)] = 0
    offset: Annotated[int, Field(ge=0)] = 0
    files: tuple[GrantedFile, ...] = ()
    ca_bundle: str | None = None
    error: WireError | None = None


class GrantResponse(ApiModel):
    """One Grant for each query, in the same order."""

    grants: tuple[Grant, ...]


class ProposedFile(ApiModel):
    """One file as the first node read it."""

    path: Path
    size_bytes: ByteCount
    sha256: Sha256
    pieces: Annotated[
        tuple[Sha256, ...], Field(description=f"blake3 of each {PIECE_BYTES} bytes.")
    ] = ()


class Proposal(ApiModel):
    """`POST /v1/proposals`: the content that one node has read and verified completely."""

    uid: Uid
    source_digest: Digest
    files: Annotated[tuple[ProposedFile, ...], Field(min_length=1, max_length=MAX_FILES)]


class ProposalResponse(ApiModel):
    """The adopted content, which may be another node's; or the refusal (HTTP 409)."""

    content_digest: Digest | None = None
    error: WireError | None = None
