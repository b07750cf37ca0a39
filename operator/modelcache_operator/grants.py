"""What an agent is granted, and which content is adopted. Knows nothing of HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from modelcache_api import names
from modelcache_api.manifest import (
    ContentFile,
    ContentManifest,
    SourceFile,
    SourceManifest,
    make_content_manifest,
)
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import (
    Grant,
    GrantedCut,
    GrantedFile,
    GrantQuery,
    GrantRequest,
    GrantResponse,
    PeerGrant,
    Proposal,
    ProposalResponse,
    SharedBytes,
    SlotAnswer,
    SlotRequest,
    WireError,
)
from modelcache_operator.decide.grant_access import (
    Caller,
    find_entry,
    judge_adoption,
    judge_proposal,
    refuse_entry,
)
from modelcache_operator.decide.pin import describe_pin_conflict
from modelcache_operator.decide.world import ModelVersionView, Uid
from modelcache_operator.peering import Peering
from modelcache_operator.ports.manifests import AdoptedContent, ManifestDamagedError, Manifests
from modelcache_operator.ports.sources import SignedPage, SourceError, Sources
from modelcache_operator.ports.world import WorldReader
from modelcache_operator.sharing import find_shared
from modelcache_operator.slots import Slots
from modelcache_operator.source_turn import SourceTurn

logger = logging.getLogger(__name__)
# Files in one answer over all its entries: keeps it in the low megabytes. Callers go on at
# offset + len(files).
MAX_FILES_PER_ANSWER: Final = 2_000
_TOO_OLD: Final = (
    "a limit of the fleet covers the source, and this agent is older than such limits: upgrade it"
)
_NOT_FOR_PODS: Final = (
    "a limit of the fleet covers the source, and agents alone can keep to it: use the pod's volume"
)
_CANNOT_READ: Final = "the operator cannot sign for this source now: see its ModelVersion"
# What this replica has not seen yet, and what only a changed object or Secret can help.
_LATE_SECONDS: Final = 5.0
_SLOW_SECONDS: Final = 60.0


class FileRefusedError(Exception):
    """A file is not handed over. `retry_after_seconds` where waiting may help."""

    def __init__(self, error: WireError, retry_after_seconds: float | None = None) -> None:
        super().__init__(error.reason)
        self.error = error
        is_late = error.reason in {Reason.NOT_KNOWN_YET, Reason.RESOLVING}
        self.retry_after_seconds = _LATE_SECONDS if is_late else retry_after_seconds


class GrantService:
    """Answers for the entries of the caller's own CacheNode and for nothing else.

    Any replica may answer. Messages name no Secret and no URL: agents put them into a status that
    every agent may read. Errors of the API server pass through.
    """

    def __init__(
        self,
        world: WorldReader,
        manifests: Manifests,
        sources: Sources,
        *,
        peering: Peering | None = None,
        slots: Slots | None = None,
        on_adopted: Callable[[Uid], None] | None = None,
        on_source_missing: Callable[[Uid], None] | None = None,
    ) -> None:
        self._world = world
        self._manifests = manifests
        self._sources = sources
        self._peering = peering
        self._slots = slots
        self._on_adopted = on_adopted
        self._on_source_missing = on_source_missing

    async def grant(self, caller: Caller, request: GrantRequest) -> GrantResponse:
        """One Grant for each query, in the same order."""
        grants: list[Grant] = []
        left = MAX_FILES_PER_ANSWER
        for query in request.entries:
            grant = await self._grant_entry(caller, query, min(query.limit, left))
            left -= len(grant.files)
            grants.append(grant)
        return GrantResponse(grants=tuple(grants))

    async def propose(self, caller: Caller, proposal: Proposal) -> ProposalResponse:
        """Adopt the content if the version has none; the refusal if it is not the adopted one."""
        uid = Uid(proposal.uid)
        found = self._find(caller, uid)
        if found is None:
            return ProposalResponse(error=self._refuse(caller, uid))
        entry, version = found
        if proposal.source_digest != entry.source_digest:
            return _refused(Reason.SOURCE_CHANGED, "the proposal is about another source manifest")
        try:
            source = await self._get_source(entry)
            if source is None:
                return _refused(Reason.RESOLVING, "the source manifest is not kept yet")
            content = await asyncio.to_thread(_content_of, proposal)
            error = judge_proposal(source, content, version.spec.digest)
            if error is not None:
                return ProposalResponse(error=error)
            adopted = await self._manifests.adopt_content(uid, content)
        except ManifestDamagedError:
            return ProposalResponse(error=_damaged(uid))
        if self._on_adopted is not None:
            self._on_adopted(uid)
        error = judge_adoption(content, adopted.manifest)
        return ProposalResponse(content_digest=adopted.manifest.digest, error=error)

    async def read_file(self, caller: Caller, uid: Uid, number: int) -> bytes:
        """One file of an entry that has no URL, by its place in the source manifest.

        Raises:
            FileRefusedError: it is not the caller's to read, or cannot be read now.
        """
        found = self._find(caller, uid)
        if found is None:
            raise FileRefusedError(self._refuse(caller, uid))
        return await self.read_version_file(*found, number)

    async def read_version_file(
        self, entry: EntrySpec, version: ModelVersionView, number: int
    ) -> bytes:
        """The same, for whoever was found to have leave to read the version.

        Raises:
            FileRefusedError: it cannot be read now.
        """
        try:
            opened = await self._open(entry, version)
            if isinstance(opened, WireError):
                raise FileRefusedError(opened)
            source, _ = opened
            if number >= len(source.files):
                raise FileRefusedError(_make_error(Reason.GRANT_REFUSED, "no such file"))
            return await self._sources.read(version, source.files[number].whole, source.revision)
        except ManifestDamagedError:
            raise FileRefusedError(_damaged(version.uid)) from None
        except SourceError as error:
            wait = error.retry_after_seconds or _SLOW_SECONDS
            raise FileRefusedError(_make_error(error.reason, _CANNOT_READ), wait) from None

    def answer_slot(self, caller: Caller, request: SlotRequest) -> SlotAnswer:
        """Whether the caller may read an entry's source now, or go on reading it."""
        slots, uid = self._slots, Uid(request.uid)
        if slots is None:
            return SlotAnswer(is_limited=False)
        found = self._find(caller, uid)
        if found is not None:
            return slots.ask(caller, *found, request.slot)
        if not request.slot.wants:
            slots.release(caller, uid, request.slot)
        return SlotAnswer(
            leads=False, ask_again_seconds=_LATE_SECONDS, message=refuse_entry().message
        )

    async def _grant_entry(self, caller: Caller, query: GrantQuery, limit: int) -> Grant:
        uid = Uid(query.uid)
        found = self._find(caller, uid)
        if found is None:
            return Grant(uid=uid, error=self._refuse(caller, uid))
        if limit < 1:
            return _failed(uid, Reason.THROTTLED, "ask for fewer entries at a time")
        return await self.grant_version(*found, query, limit, caller=caller)

    async def grant_version(
        self,
        entry: EntrySpec,
        version: ModelVersionView,
        query: GrantQuery,
        limit: int,
        *,
        caller: Caller | None = None,
    ) -> Grant:
        """One page, for whoever was found to have leave to read the version.

        Only an agent, the `caller`, is told of other nodes.
        """
        uid = version.uid
        try:
            return await self._answer(caller, entry, version, query, limit)
        except ManifestDamagedError:
            return Grant(uid=uid, error=_damaged(uid))
        except SourceError as error:
            return _failed(uid, error.reason, _CANNOT_READ)

    async def _answer(
        self,
        caller: Caller | None,
        entry: EntrySpec,
        version: ModelVersionView,
        query: GrantQuery,
        limit: int,
    ) -> Grant:
        uid, offset = version.uid, query.offset
        opened = await self._open(entry, version)
        if isinstance(opened, WireError):
            return Grant(uid=uid, error=opened)
        source, content = opened
        content_digest = None if content is None else content.manifest.digest
        turn = SourceTurn(self._slots, caller, entry, version, query.slot)
        if turn.is_refused:
            return _failed(uid, Reason.THROTTLED, _TOO_OLD if caller else _NOT_FOR_PODS)
        peers = None
        if self._peering is not None and caller is not None and query.peers is not None:
            peers = self._peering.grant(
                caller, entry, query.peers, content_digest, may_read=turn.may_read
            )
            if peers is not None and _must_wait(peers, content):
                turn.give_up()
                return Grant(uid=uid, source_digest=entry.source_digest, peers=peers)
        if (peers is None or peers.reads_source) and not turn.may_read():
            return Grant(uid=uid, source_digest=entry.source_digest, slot=turn.answer)
        files = source.files[offset : offset + limit]
        whole = [file.whole for file in files]
        page = await self._sources.sign(version, whole, source.revision)
        shared: Mapping[str, tuple[SharedBytes, ...]] = {}
        if caller is not None:
            shared = await find_shared(self._world, self._manifests, caller, version, files)
        granted = await asyncio.to_thread(_build_files, uid, offset, files, page, content, shared)
        return Grant(
            uid=uid,
            source_digest=entry.source_digest,
            content_digest=content_digest,
            total_files=len(source.files),
            offset=offset,
            files=granted,
            ca_bundle=page.ca_bundle,
            peers=peers,
            slot=turn.tell(),
        )

    async def _open(
        self, entry: EntrySpec, version: ModelVersionView
    ) -> tuple[SourceManifest, AdoptedContent | None] | WireError:
        """Both manifests of a version whose bytes are wanted, or why they are not granted."""
        source = await self._get_source(entry)
        if source is None:
            return _make_error(Reason.RESOLVING, "the source manifest is not kept yet")
        content = await self._manifests.get_content(version.uid)
        adopted = None if content is None else content.manifest.digest
        if conflict := describe_pin_conflict(version.spec.digest, adopted):
            return _make_error(Reason.DIGEST_MISMATCH, conflict)
        return source, content

    async def _get_source(self, entry: EntrySpec) -> SourceManifest | None:
        uid = Uid(entry.uid)
        source = await self._manifests.get_source(uid, entry.source_digest)
        if source is None and self._on_source_missing is not None:
            self._on_source_missing(uid)
        return source

    def _find(self, caller: Caller, uid: Uid) -> tuple[EntrySpec, ModelVersionView] | None:
        entry = find_entry(caller, self._world.cache_node(caller.node), uid)
        version = self._world.model_version(uid)
        if entry is None or version is None or version.is_deleted:
            return None
        return entry, version

    def _refuse(self, caller: Caller, uid: Uid) -> WireError:
        """Entries of others look like absent ones; of its own the agent learns what is wrong."""
        if find_entry(caller, self._world.cache_node(caller.node), uid) is None:
            return refuse_entry()
        if uid in self._world.unreadable.versions:
            message = "the operator does not understand the ModelVersion: upgrade the operator"
            return WireError(reason=Reason.MODEL_VERSION_NOT_READY, message=message)
        if self._world.model_version(uid) is None:
            return refuse_entry()
        return WireError(reason=Reason.GRANT_REFUSED, message="the ModelVersion is being deleted")


def _build_files(
    uid: Uid,
    offset: int,
    files: Sequence[SourceFile],
    page: SignedPage,
    content: AdoptedContent | None,
    shared: Mapping[str, tuple[SharedBytes, ...]],
) -> tuple[GrantedFile, ...]:
    known = {} if content is None else {file.path: file for file in content.manifest.files}
    return tuple(
        GrantedFile(
            path=file.path,
            size_bytes=file.size_bytes,
            etag=file.etag,
            version_id=file.version_id,
            last_modified=file.last_modified,
            url=signed.url or f"{names.PATH_FILES}/{uid}/{number}",
            headers=dict(signed.headers),
            expires_at=signed.expires_at,
            sha256=known[file.path].sha256 if file.path in known else file.sha256,
            checksum=None if file.path in known else file.checksum,
            pieces=known[file.path].pieces if file.path in known else (),
            cut=GrantedCut.of(file.cut),
            shared=shared.get(file.path, ()),
        )
        for number, (file, signed) in enumerate(zip(files, page.files, strict=True), offset)
    )


def _must_wait(peers: PeerGrant, content: AdoptedContent | None) -> bool:
    """True if the caller can fetch nothing now: from no source, and from nobody it knows of."""
    return not peers.reads_source and (content is None or not peers.holders)


def _content_of(proposal: Proposal) -> ContentManifest:
    return make_content_manifest(
        ContentFile(file.path, file.size_bytes, file.sha256, file.pieces) for file in proposal.files
    )


def _make_error(reason: Reason, message: str) -> WireError:
    return WireError(reason=reason, message=message)


def _failed(uid: Uid, reason: Reason, message: str) -> Grant:
    return Grant(uid=uid, error=_make_error(reason, message))


def _refused(reason: Reason, message: str) -> ProposalResponse:
    return ProposalResponse(error=_make_error(reason, message))


def _damaged(uid: Uid) -> WireError:
    logger.error("a stored manifest of ModelVersion %s is damaged", uid)
    return WireError(reason=Reason.SOURCE_ERROR, message="the stored manifest is damaged")
