"""The operator, as agents see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from modelcache_agent.fetch import GrantProvider
from modelcache_api.manifest import ContentDigest, ContentFile, ContentManifest, SourceManifest
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import Holder, SharedBytes, SlotAnswer, SlotQuery


@dataclass(frozen=True, slots=True)
class Slot:
    """What was answered about a limited source, and when it was asked (seconds of boot time)."""

    answer: SlotAnswer
    asked_at: float

    @property
    def until(self) -> float:
        """When the lease runs out; before `asked_at` there is none."""
        return (
            self.asked_at + self.answer.lease_seconds if self.answer.is_granted else float("-inf")
        )


@dataclass(frozen=True, slots=True)
class OpenedGrant:
    """Leave to read one version: its files, and their contents where they are known, by path.

    `slot` None: no limit of the fleet covers the version. `shared` says, by path, in which files of
    other versions some of the bytes are.
    """

    source: SourceManifest
    contents: Mapping[str, ContentFile]
    content_digest: ContentDigest | None
    ca_bundle: str | None
    slot: Slot | None = None
    shared: Mapping[str, tuple[SharedBytes, ...]] = field(default_factory=dict)


class MustWaitError(Exception):
    """There is nothing to fetch yet: another node reads the source, or it is not our turn to.

    `holders` names that node, once it is known how to reach it. `slot` is there if a limit of the
    fleet is waited for.
    """

    def __init__(self, holders: tuple[Holder, ...], slot: SlotAnswer | None = None) -> None:
        super().__init__("another node reads the source, or this one has to wait for its turn")
        self.holders = holders
        self.slot = slot


class Grants(GrantProvider, Protocol):
    """Also the fetch engine's provider of signed URLs."""

    async def open(self, entry: EntrySpec, waited_seconds: float = 0.0) -> OpenedGrant:
        """All pages of the entry's grant, checked against its sourceDigest.

        Raises:
            GrantUnavailableError: there is none, or it is not for this entry.
            MustWaitError: nothing can be fetched yet.
        """
        ...

    async def ask_slot(self, uid: str, query: SlotQuery) -> Slot:
        """Renew or give back leave to read the version's source, or ask for it.

        Raises:
            GrantUnavailableError: no answer.
        """
        ...

    def forget(self, uid: str) -> None:
        """Drop the URLs kept for a version."""
        ...

    async def propose(self, entry: EntrySpec, content: ContentManifest) -> ContentDigest:
        """Propose the content; the digest that is adopted, which may be another one.

        Raises:
            GrantUnavailableError: no answer, or a refusal with its reason.
        """
        ...
