"""Grants and proposals over the operator's HTTPS endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from modelcache_agent.adapters.operator_http import OperatorHttp
from modelcache_agent.decide.granting import (
    UNKNOWN_SECONDS,
    check_source,
    describe_wire_error,
    make_contents,
)
from modelcache_agent.fetch import GrantUnavailableError
from modelcache_agent.peers.book import PeerBook
from modelcache_agent.ports.grants import MustWaitError, OpenedGrant, Slot
from modelcache_api.manifest import ContentDigest, ContentManifest, SourceFile, make_source_manifest
from modelcache_api.names import PATH_GRANTS, PATH_PROPOSALS, PATH_SLOTS, Reason
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import (
    Grant,
    GrantedFile,
    GrantQuery,
    GrantRequest,
    GrantResponse,
    PeerQuery,
    Proposal,
    ProposalResponse,
    ProposedFile,
    SlotAnswer,
    SlotQuery,
    SlotRequest,
    WireError,
)
from modelcache_kube import boot_seconds

_ODD_SECONDS: Final = 60.0
# Whoever fetches already is not sent to look for the leader.
_NO_LONGER_SECONDS: Final = 3600.0
# Of pages and URLs of what is fetched already: its slot is renewed apart from them.
_GOES_ON: Final = SlotQuery(wants=False)


@dataclass(slots=True)
class _Opened:
    """URLs of one version, and where its files stand in the source manifest."""

    source_digest: str
    files: dict[str, GrantedFile] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def take(self, grant: Grant) -> None:
        """Keep one page."""
        for number, file in enumerate(grant.files):
            self.files[file.path] = file
            self.positions[file.path] = grant.offset + number


class HttpGrants:
    """The port. One version's pages are asked for one after another.

    `path` is where grants are asked for: agents and single pods have doors of their own.
    """

    def __init__(
        self,
        http: OperatorHttp,
        book: PeerBook | None = None,
        now: Callable[[], float] = boot_seconds,
        *,
        path: str = PATH_GRANTS,
    ) -> None:
        self._path = path
        self._http = http
        self._book = book
        self._now = now
        self._opened: dict[str, _Opened] = {}

    async def open(self, entry: EntrySpec, waited_seconds: float = 0.0) -> OpenedGrant:
        """All pages of the entry, checked as a whole before any byte is asked for."""
        opened = _Opened(entry.source_digest)
        asked_at = self._now()
        turn = SlotQuery(asked_at=asked_at, waited_seconds=waited_seconds)
        first = await self._page(entry.uid, 0, waited_seconds, turn)
        self._learn(entry.uid, entry.source_digest, first)
        if first.must_wait:
            holders = () if first.peers is None else first.peers.holders
            if not holders and (first.slot is None or not first.slot.leads):
                self._http.reconnect()
            raise MustWaitError(holders, first.slot)
        opened.take(first)
        while first.files and len(opened.files) < first.total_files:
            page = await self._page(entry.uid, len(opened.files), waited_seconds)
            before = len(opened.files)
            opened.take(page)
            if len(opened.files) == before:
                break
        source = make_source_manifest(
            SourceFile(
                file.path,
                file.size_bytes,
                file.etag,
                file.version_id,
                checksum=file.checksum,
                last_modified=file.last_modified,
                cut=None if file.cut is None else file.cut.cut,
            )
            for file in opened.files.values()
        )
        refusal = check_source(entry, source)
        if refusal is not None:
            raise GrantUnavailableError(refusal.reason, refusal.message, _ODD_SECONDS)
        self._opened[entry.uid] = opened
        return OpenedGrant(
            source=source,
            contents=make_contents(opened.files.values()),
            content_digest=_digest(first.content_digest),
            ca_bundle=first.ca_bundle,
            slot=None if first.slot is None else Slot(first.slot, asked_at),
            shared={file.path: file.shared for file in opened.files.values() if file.shared},
        )

    async def ask_slot(self, uid: str, query: SlotQuery) -> Slot:
        """One question; a replica that does not decide it is not asked again."""
        asked_at = self._now()
        query = query.model_copy(update={"asked_at": asked_at})
        request = SlotRequest(uid=uid, slot=query)
        body = request.model_dump_json(by_alias=True, exclude_none=True).encode()
        _status, document = await self._http.post(PATH_SLOTS, body)
        try:
            answer = SlotAnswer.model_validate(document)
        except ValidationError as error:
            raise _odd("the operator's answer about a slot cannot be read") from error
        if not answer.leads:
            self._http.reconnect()
        return Slot(answer, asked_at)

    def forget(self, uid: str) -> None:
        """Drop the URLs kept for a version."""
        self._opened.pop(uid, None)
        if self._book is not None:
            self._book.forget(uid)

    async def current(self, uid: str, path: str) -> GrantedFile:
        """From what was kept; the engine asks for a refresh itself where that is too old."""
        return self._find(uid, path)[1]

    async def refresh(self, uid: str, path: str) -> GrantedFile:
        """The file and those after it, newly signed; calls at the same time share the answer."""
        opened, old = self._find(uid, path)
        async with opened.lock:
            if opened.files[path] is old:
                grant = await self._page(uid, opened.positions[path], _NO_LONGER_SECONDS)
                if grant.source_digest != opened.source_digest:
                    message = "the operator grants another source than the one being fetched"
                    raise GrantUnavailableError(Reason.SOURCE_CHANGED, message, _ODD_SECONDS)
                self._learn(uid, opened.source_digest, grant)
                opened.take(_with_bundle(grant))
        return self._find(uid, path)[1]

    def _learn(self, uid: str, source_digest: str, grant: Grant) -> None:
        if self._book is not None:
            self._book.learn(uid, source_digest, grant.peers)

    async def propose(self, entry: EntrySpec, content: ContentManifest) -> ContentDigest:
        """Propose the content; the digest that is adopted."""
        proposal = Proposal(
            uid=entry.uid,
            source_digest=entry.source_digest,
            files=tuple(
                ProposedFile(
                    path=file.path,
                    size_bytes=file.size_bytes,
                    sha256=file.sha256,
                    pieces=file.pieces,
                )
                for file in content.files
            ),
        )
        body = proposal.model_dump_json(by_alias=True, exclude_none=True).encode()
        _status, document = await self._http.post(PATH_PROPOSALS, body)
        try:
            answer = ProposalResponse.model_validate(document)
        except ValidationError as error:
            raise _odd("the operator's answer to a proposal cannot be read") from error
        adopted = _digest(answer.content_digest)
        if answer.error is not None or adopted is None:
            raise self._refused(answer.error)
        return adopted

    async def _page(
        self, uid: str, offset: int, waited_seconds: float, slot: SlotQuery = _GOES_ON
    ) -> Grant:
        peers = None
        if self._book is not None:
            avoid = self._book.avoided(uid)
            peers = PeerQuery(avoid=avoid, waited_seconds=waited_seconds)
        query = GrantQuery(uid=uid, offset=offset, peers=peers, slot=slot)
        request = GrantRequest(entries=(query,))
        body = request.model_dump_json(by_alias=True, exclude_none=True).encode()
        _status, document = await self._http.post(self._path, body)
        try:
            grant = GrantResponse.model_validate(document).grants[0]
        except (ValidationError, IndexError) as error:
            raise _odd("the operator's grant cannot be read") from error
        if grant.uid != uid or (grant.error is None and grant.offset != offset):
            raise _odd("the operator's grant is for something else")
        if grant.error is not None:
            raise self._refused(grant.error)
        files = await self._http.give_addresses(grant.files)
        return grant.model_copy(update={"files": files})

    def _refused(self, error: WireError | None) -> GrantUnavailableError:
        reason, message = describe_wire_error(error)
        if reason is not Reason.NOT_KNOWN_YET:
            return GrantUnavailableError(reason, message, _ODD_SECONDS)
        self._http.reconnect()
        return GrantUnavailableError(reason, message, UNKNOWN_SECONDS)

    def _find(self, uid: str, path: str) -> tuple[_Opened, GrantedFile]:
        opened = self._opened.get(uid)
        file = None if opened is None else opened.files.get(path)
        if opened is None or file is None:
            message = "the operator no longer grants a file that is being fetched"
            raise GrantUnavailableError(Reason.GRANT_REFUSED, message, _ODD_SECONDS)
        return opened, file


def _with_bundle(grant: Grant) -> Grant:
    """Each file with the authorities to trust: those of the whole may be others than before."""
    if grant.ca_bundle is None:
        return grant
    files = (
        file if file.ca_bundle else file.model_copy(update={"ca_bundle": grant.ca_bundle})
        for file in grant.files
    )
    return grant.model_copy(update={"files": tuple(files)})


def _digest(digest: str | None) -> ContentDigest | None:
    return None if digest is None else ContentDigest(digest)


def _odd(message: str) -> GrantUnavailableError:
    return GrantUnavailableError(Reason.OPERATOR_UNREACHABLE, message, _ODD_SECONDS)
