"""What a plan asks the shell to do. Each action may be repeated without harm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_api.names import EntryState, Reason

if TYPE_CHECKING:
    from modelcache_api.manifest import ContentDigest
    from modelcache_api.v1alpha1.cache_node import EntrySpec


@dataclass(frozen=True, slots=True)
class CancelFetch:
    """Stop a transfer that nobody wants any more; its reservation is released."""

    uid: str


@dataclass(frozen=True, slots=True)
class PauseFetch:
    """Stop a transfer until it is its turn again; what it has fetched is kept."""

    uid: str


@dataclass(frozen=True, slots=True)
class SetLabels:
    """Make the Node carry exactly these keys of ours."""

    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Evict:
    """Give up an unused content for a newcomer; refused if a process has it open after all."""

    digest: ContentDigest
    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Give up a content that no entry names; what is open moves aside until it is closed."""

    digest: ContentDigest


@dataclass(frozen=True, slots=True)
class DropPartial:
    """Delete the unfinished files of a version."""

    uid: str


@dataclass(frozen=True, slots=True)
class Verify:
    """Hash a content whose files do not look as recorded."""

    digest: ContentDigest


@dataclass(frozen=True, slots=True)
class Scrub:
    """Read published files again, from the disk, and compare them with their records."""

    blobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Isolate:
    """Move a damaged file to quarantine; whoever has it open keeps it."""

    blob: str


@dataclass(frozen=True, slots=True)
class Propose:
    """Ask the operator whether these bytes are the version's content."""

    entry: EntrySpec
    digest: ContentDigest


@dataclass(frozen=True, slots=True)
class Fetch:
    """Reserve the entry's bytes and transfer them."""

    entry: EntrySpec


@dataclass(frozen=True, slots=True)
class Repair:
    """Reserve `size_bytes` and transfer the files of the entry that lie in quarantine."""

    entry: EntrySpec
    size_bytes: int


Action = (
    CancelFetch
    | PauseFetch
    | SetLabels
    | Evict
    | Remove
    | DropPartial
    | Verify
    | Scrub
    | Isolate
    | Propose
    | Fetch
    | Repair
)


@dataclass(frozen=True, slots=True)
class EntryView:
    """What is true of one entry now, and why."""

    uid: str
    state: EntryState
    reason: Reason
    message: str = ""
    digest: ContentDigest | None = None
    progress_percent: int = 0


@dataclass(frozen=True, slots=True)
class Victim:
    """Why a content gives way: its policy's score with the inputs, and for what."""

    digest: ContentDigest
    policy: str
    score: float
    inputs: str
    cause: str

    def __str__(self) -> str:
        return f"policy={self.policy} score={self.score:.6g} {self.inputs}: {self.cause}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions in order, and what to report.

    `victims` explains each of the `condemned`. `must_look_at_use` asks for another plan that knows
    which contents are in use. `recheck_at` is when to plan again without an event (monotonic
    seconds).
    """

    actions: tuple[Action, ...] = ()
    entries: tuple[EntryView, ...] = ()
    labels: frozenset[str] = frozenset()
    condemned: frozenset[str] = frozenset()
    victims: tuple[Victim, ...] = ()
    must_look_at_use: bool = False
    recheck_at: float | None = None
