"""What an agent is granted, without a network: manifests and sources in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import digest, make_version
from fakes.seen_world import SeenWorld
from modelcache_api.manifest import (
    ContentFile,
    SourceFile,
    make_content_manifest,
    make_source_manifest,
)
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import GrantQuery, GrantRequest, Proposal, ProposedFile, SlotQuery
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.world import NodeName, ObjectKey, Uid, Unreadable
from modelcache_operator.grants import FileRefusedError, GrantService
from modelcache_operator.ports.manifests import AdoptedContent
from modelcache_operator.ports.sources import SignedFile, SignedPage, SourceError

SOURCE = make_source_manifest([SourceFile("model.bin", 9, etag='"e"')])
CONTENT = make_content_manifest([ContentFile("model.bin", 9, "c" * 64)])
CALLER = Caller(NodeName("n1"), Uid("uid-n1"), "pod", "pod-uid")
VERSION = Uid("v1")
STATED = (("a", None), ("b", "e" * 64), ("c", None))


class Kept:
    async def get_source(self, uid, digest):
        return SOURCE

    async def get_content(self, uid):
        return AdoptedContent(CONTENT, digest("d"))


class Signer:
    async def sign(self, version, files, revision):
        return SignedPage(tuple(SignedFile(f.path, "https://s/x", (), 0.0) for f in files))


async def ask(version, unreadable=None):
    world = SeenWorld()
    world.add_node(
        "n1", "uid-n1", [EntrySpec(uid=VERSION, source_digest=SOURCE.digest, size_bytes=9)]
    )
    if version is not None:
        world.versions[VERSION] = version
    world.unreadable = unreadable or Unreadable()
    service = GrantService(world, Kept(), Signer())
    answer = await service.grant(CALLER, GrantRequest(entries=(GrantQuery(uid=VERSION),)))
    return answer.grants[0]


@pytest.mark.parametrize(
    ("version", "refusal"),
    [
        pytest.param(make_version(), None, id="no pin"),
        pytest.param(make_version(spec_digest=CONTENT.digest), None, id="the pin is the content"),
        pytest.param(
            make_version(spec_digest=digest("e")),
            Reason.DIGEST_MISMATCH,
            id="the pin contradicts the content, whether or not the status says so yet",
        ),
    ],
)
async def test_urls_are_signed_only_for_bytes_that_are_wanted(version, refusal):
    grant = await ask(version)
    assert (grant.error.reason if grant.error else None) == refusal
    assert bool(grant.files) is (refusal is None)


async def test_of_a_version_that_cannot_be_read_nothing_is_signed_and_the_cause_is_told():
    there = await ask(None, Unreadable(versions={VERSION: ObjectKey("search", "m1")}))
    assert there.error.reason == Reason.MODEL_VERSION_NOT_READY


async def test_what_our_watch_has_not_told_of_yet_is_told_apart_from_what_is_denied():
    unseen = await ask(None)
    assert unseen.error.reason == Reason.NOT_KNOWN_YET
    deleted = await ask(replace(make_version(), is_deleted=True))
    assert deleted.error.reason == Reason.GRANT_REFUSED


async def test_unseen_entries_and_those_of_others_get_one_answer():
    world = SeenWorld()
    world.add_node("n1", "uid-n1")
    world.add_node(
        "n2", "uid-n2", [EntrySpec(uid=VERSION, source_digest=SOURCE.digest, size_bytes=9)]
    )
    world.versions[VERSION] = make_version()
    service = GrantService(world, Kept(), Signer())
    request = GrantRequest(entries=(GrantQuery(uid=VERSION), GrantQuery(uid="nobody's")))
    others, absent = (await service.grant(CALLER, request)).grants
    assert others.error == absent.error
    assert others.error.reason == Reason.NOT_KNOWN_YET


class Keeper(Signer):
    """Its files have no URL: the operator hands them over."""

    error: SourceError | None = None

    async def sign(self, version, files, revision):
        return SignedPage(tuple(SignedFile(f.path, None, (), 0.0) for f in files))

    async def read(self, version, file, revision):
        if self.error is not None:
            raise self.error
        return f"{file.path} at {revision}".encode()


class StatedSource(Kept):
    """Three files of a commit; the checksum of one is stated, and no content is known."""

    source = make_source_manifest(
        [SourceFile(name, 9, version_id="b", sha256=sha) for name, sha in STATED], "0a" * 20
    )

    async def get_source(self, uid, digest):
        return self.source

    async def get_content(self, uid):
        return None


def stated_service(sources, version=None, manifests=None):
    world = SeenWorld()
    entry = EntrySpec(uid=VERSION, source_digest=StatedSource.source.digest, size_bytes=27)
    world.add_node("n1", "uid-n1", [entry])
    world.versions[VERSION] = version or make_version()
    return GrantService(world, manifests or StatedSource(), sources)


async def test_a_stores_checksum_is_granted_until_the_sha256_is_known():
    class Checked(StatedSource):
        source = make_source_manifest(
            [SourceFile("model.bin", 9, '"e"', checksum="crc32:NhCmhg==")]
        )

    class Known(Checked):
        async def get_content(self, uid):
            return AdoptedContent(CONTENT, digest("d"))

    for manifests, told in ((Checked(), (None, "crc32:NhCmhg==")), (Known(), ("c" * 64, None))):
        service = stated_service(Signer(), manifests=manifests)
        (grant,) = (
            await service.grant(CALLER, GrantRequest(entries=(GrantQuery(uid=VERSION),)))
        ).grants
        assert [(file.sha256, file.checksum) for file in grant.files] == [told]


async def test_files_without_a_url_are_asked_for_at_the_operator_by_their_number():
    service = stated_service(Keeper())
    query = GrantQuery(uid=VERSION, offset=1)
    (grant,) = (await service.grant(CALLER, GrantRequest(entries=(query,)))).grants
    assert [file.url for file in grant.files] == ["/v1/files/v1/1", "/v1/files/v1/2"]
    assert [file.sha256 for file in grant.files] == ["e" * 64, None], "as the source states it"
    assert await service.read_file(CALLER, VERSION, 2) == b"c at " + b"0a" * 20


async def test_files_are_handed_to_their_nodes_agent_alone_and_only_where_bytes_are_granted():
    other = Caller(NodeName("n1"), Uid("uid-of-a-rebuilt-node"), "pod", "pod-uid")
    conflict = make_version(spec_digest=digest("e"))

    class Adopted(StatedSource):
        async def get_content(self, uid):
            return AdoptedContent(CONTENT, digest("d"))

    for service, caller, number, reason, may_wait in (
        (stated_service(Keeper()), other, 0, Reason.NOT_KNOWN_YET, True),
        (stated_service(Keeper()), CALLER, 3, Reason.GRANT_REFUSED, False),
        (stated_service(Keeper(), conflict, Adopted()), CALLER, 0, Reason.DIGEST_MISMATCH, False),
    ):
        with pytest.raises(FileRefusedError) as refused:
            await service.read_file(caller, VERSION, number)
        assert refused.value.error.reason == reason
        assert (refused.value.retry_after_seconds is not None) is may_wait


async def test_a_file_that_cannot_be_read_now_is_asked_for_again_later():
    keeper = Keeper()
    keeper.error = SourceError(Reason.THROTTLED, "the hub's words", retry_after_seconds=30.0)
    with pytest.raises(FileRefusedError) as refused:
        await stated_service(keeper).read_file(CALLER, VERSION, 0)
    assert refused.value.error.reason == Reason.THROTTLED
    assert "the hub" not in refused.value.error.message
    assert refused.value.retry_after_seconds == 30.0


async def test_a_proposal_must_keep_to_what_the_source_states():
    service = stated_service(Keeper())
    files = [ProposedFile(path=name, size_bytes=9, sha256="f" * 64) for name, _ in STATED]
    source_digest = StatedSource.source.digest
    proposal = Proposal(uid=VERSION, source_digest=source_digest, files=tuple(files))
    answer = await service.propose(CALLER, proposal)
    assert answer.error.reason == Reason.DIGEST_MISMATCH
    assert "the source says" in answer.error.message


async def test_whoever_misses_the_list_of_files_has_it_looked_for():
    world, missed = SeenWorld(), []
    entry = EntrySpec(uid=VERSION, source_digest=digest("f"), size_bytes=9)
    world.add_node("n1", "uid-n1", [entry])
    world.versions[VERSION] = make_version()

    class Lost(Kept):
        async def get_source(self, uid, digest):
            return None

    service = GrantService(world, Lost(), Signer(), on_source_missing=missed.append)
    answer = await service.grant(CALLER, GrantRequest(entries=(GrantQuery(uid=VERSION),)))
    assert answer.grants[0].error.reason == Reason.RESOLVING
    assert missed == [VERSION]


class Limited:
    """A limit covers everything; nobody may ask for a slot."""

    def covers(self, version):
        return True


@pytest.mark.parametrize("slot", [None, SlotQuery(asked_at=1.0, wants=True)])
async def test_a_source_under_a_limit_is_not_granted_to_a_pod_whatever_it_asks_for(slot):
    service = GrantService(SeenWorld(), Kept(), Signer(), slots=Limited())
    entry = EntrySpec(uid=VERSION, source_digest=SOURCE.digest, size_bytes=9)
    query = GrantQuery(uid=VERSION, slot=slot)
    grant = await service.grant_version(entry, make_version(), query, 500)
    assert grant.files == ()
    assert grant.error.reason == "Throttled"
    assert "agents alone can keep to it" in grant.error.message
