"""What agent and operator say to each other over HTTPS. Unknown fields are ignored."""

from __future__ import annotations

import base64
from typing import Annotated

from pydantic import Base64Bytes, Field

from modelcache_api.cut import MAX_LITERAL_BYTES, MAX_RANGES, Cut
from modelcache_api.limits import MAX_ENTRIES_PER_NODE, MAX_FILES, MAX_MESSAGE_LENGTH
from modelcache_api.manifest import PIECE_BYTES
from modelcache_api.v1alpha1.base import ApiModel, ByteCount, Digest
from modelcache_api.v1alpha1.cache_node import IP_PATTERN

MAX_PAGE_FILES = 500
MAX_HOLDERS = 16
MAX_AVOIDED = 64
MAX_SHARED = 4

Uid = Annotated[str, Field(min_length=1, max_length=64)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
StatedChecksum = Annotated[str, Field(max_length=128)]
Path = Annotated[str, Field(min_length=1, max_length=4096)]


class PeerQuery(ApiModel):
    """The caller can read from other nodes, and what it has found out about them.

    `avoid` names Nodes (by UID) that did not answer, came no further, or served wrong bytes.
    `waited_seconds` grows while it is told to wait for nobody in particular.
    """

    avoid: Annotated[tuple[Uid, ...], Field(max_length=MAX_AVOIDED)] = ()
    waited_seconds: Annotated[float, Field(ge=0)] = 0.0


class SlotQuery(ApiModel):
    """The caller keeps to limits of the fleet, and how it stands with one version's source.

    `wants` False: it reads nothing from the source now, and gives back what it had. `holds`: its
    lease has not run out, and `bytes_per_second` is the rate that it keeps to under it.
    `waited_seconds` grows while it is told to wait. `asked_at` (seconds of the node's boot time)
    tells the order of questions about one version: one that was overtaken is not heeded.
    """

    asked_at: Annotated[float, Field(ge=0)] = 0.0
    wants: bool = True
    holds: bool = False
    bytes_per_second: Annotated[int | None, Field(ge=1)] = None
    waited_seconds: Annotated[float, Field(ge=0)] = 0.0


class SlotAnswer(ApiModel):
    """Whether the source may be read now, under the limits of the fleet.

    `lease_seconds` count from when the question was sent; 0: not now, and `message` says why. Bytes
    from other nodes are not bounded by `bytes_per_second`; None: no limit on bandwidth. `leads`
    False: this replica does not decide it, and says nothing of a lease that is held. `is_limited`
    False: no limit covers the version any more.
    """

    lease_seconds: Annotated[float, Field(ge=0)] = 0.0
    bytes_per_second: Annotated[int | None, Field(ge=1)] = None
    ask_again_seconds: Annotated[float, Field(gt=0)] = 1.0
    message: Annotated[str, Field(max_length=MAX_MESSAGE_LENGTH)] = ""
    leads: bool = True
    is_limited: bool = True

    @property
    def is_granted(self) -> bool:
        """True if the source may be read."""
        return self.lease_seconds > 0 or not self.is_limited


class SlotRequest(ApiModel):
    """`POST /v1/slots`: renew or give back leave to read one entry's source, or ask for it."""

    uid: Uid
    slot: SlotQuery


class GrantQuery(ApiModel):
    """One page of one entry's files, in the order of the source manifest.

    Without `slot` the caller knows of no limits: it gets nothing that one covers.
    """

    uid: Uid
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_FILES)] = MAX_PAGE_FILES
    peers: PeerQuery | None = None
    slot: SlotQuery | None = None


class GrantRequest(ApiModel):
    """`POST /v1/grants`: entries of the caller's own CacheNode."""

    entries: Annotated[tuple[GrantQuery, ...], Field(min_length=1, max_length=MAX_ENTRIES_PER_NODE)]


class GrantedCut(ApiModel):
    """Which part of the source's file is taken (see cut.py), for files with spec.load."""

    whole_bytes: ByteCount
    literal: Annotated[Base64Bytes, Field(max_length=MAX_LITERAL_BYTES)] = b""
    ranges: Annotated[tuple[tuple[ByteCount, ByteCount], ...], Field(max_length=MAX_RANGES)] = ()

    @classmethod
    def of(cls, cut: Cut | None) -> GrantedCut | None:
        """The cut as it is sent; what the source states of the whole stays behind."""
        if cut is None:
            return None
        literal = base64.b64encode(cut.literal)
        return cls(whole_bytes=cut.whole_bytes, literal=literal, ranges=cut.ranges)

    @property
    def cut(self) -> Cut:
        """The cut that was sent."""
        return Cut(self.whole_bytes, self.literal, self.ranges)


class SharedBytes(ApiModel):
    """A file of another version that was made of the same file of the same source.

    Behind its first `skip` bytes it holds these ranges of the source's file, in order. Its content
    is adopted, so whoever holds it verified has those bytes.
    """

    sha256: Sha256
    size_bytes: ByteCount
    skip: ByteCount = 0
    ranges: Annotated[tuple[tuple[ByteCount, ByteCount], ...], Field(max_length=MAX_RANGES)]


class GrantedFile(ApiModel):
    """Leave to read one file until `expires_at`.

    `url` is a bearer secret: it never enters a log, a status or a metric. A path in its place names
    a file that the operator hands over itself, read with the agent's own token. `last_modified`, an
    HTTP date, is there if the file has no ETag; `sha256` if the source states it or the content is
    known, `pieces` (blake3 of each PIECE_BYTES) once the content is known; `checksum` (see
    checksums.py) is what the source states of a file without both. `ca_bundle` (PEM) takes the
    place of the grant's for this file. With a `cut`, size, digests and pieces are those of the
    part that is taken; `shared` says where some of the bytes may be on the node already.
    """

    path: Path
    size_bytes: ByteCount
    etag: str | None = None
    version_id: str | None = None
    last_modified: str | None = None
    url: str = Field(repr=False)
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    expires_at: Annotated[float, Field(description="Unix seconds.")]
    sha256: Sha256 | None = None
    checksum: StatedChecksum | None = None
    pieces: tuple[Sha256, ...] = ()
    ca_bundle: str | None = Field(default=None, repr=False)
    cut: GrantedCut | None = Field(default=None, repr=False)
    shared: Annotated[tuple[SharedBytes, ...], Field(max_length=MAX_SHARED, repr=False)] = ()


class WireError(ApiModel):
    """A refusal: one Reason word and one sentence.

    `NotKnownYet` says that this replica has not seen the entry, or the node; others may have. To
    whoever does not know a word it is `GrantRefused`.
    """

    reason: Annotated[str, Field(max_length=63)]
    message: Annotated[str, Field(max_length=MAX_MESSAGE_LENGTH)] = ""


class Holder(ApiModel):
    """A node that holds the version, or has begun to. `distance` 0 is the nearest."""

    node_uid: Uid
    address: Annotated[str, Field(max_length=45, pattern=IP_PATTERN)]
    port: Annotated[int, Field(ge=1, le=65535)]
    distance: Annotated[int, Field(ge=0)] = 0
    is_complete: bool = False


class PeerGrant(ApiModel):
    """Leave to read the entry from other nodes.

    `ticket` is a secret of the node it names. `reads_source` False: another node reads the source
    for all; read it only when the others give nothing. A grant without files and with
    `reads_source` False says to wait: the holders named are who is waited for.
    """

    ticket: str = Field(repr=False)
    holders: Annotated[tuple[Holder, ...], Field(max_length=MAX_HOLDERS)] = ()
    reads_source: bool = True


class Grant(ApiModel):
    """One page of an entry, or the reason why there is none."""

    uid: Uid
    source_digest: Digest | None = None
    content_digest: Digest | None = None
    total_files: Annotated[int, Field(ge=0, le=MAX_FILES)] = 0
    offset: Annotated[int, Field(ge=0)] = 0
    files: tuple[GrantedFile, ...] = ()
    ca_bundle: str | None = None
    peers: PeerGrant | None = None
    slot: SlotAnswer | None = None
    error: WireError | None = None

    @property
    def must_wait(self) -> bool:
        """True if nothing can be fetched before another node has read the source, or its turn."""
        if self.total_files:
            return False
        is_awaiting_peers = self.peers is not None and not self.peers.reads_source
        return is_awaiting_peers or (self.slot is not None and not self.slot.is_granted)


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


class CertificateRequest(ApiModel):
    """`POST /v1/certificates`: a certificate for the caller's Node, to talk to other agents."""

    public_key: Annotated[
        str, Field(max_length=4096, description="PEM, P-256; the private key stays with the agent.")
    ]


class CertificateResponse(ApiModel):
    """A certificate for this key and Node, and the authorities to trust in other agents."""

    certificate: str
    authorities: str
    valid_seconds: Annotated[float, Field(gt=0)]
