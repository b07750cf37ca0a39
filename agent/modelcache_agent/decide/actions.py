"""What a plan asks the shell to do. Each action may be repeated without harm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.measures import EvictionCause
from modelcache_api.names import EntryState, Reason, Tier

if TYPE_CHECKING:
    from modelcache_agent.decide.gpu.room import Key
    from modelcache_api.manifest import ContentDigest
    from modelcache_api.v1alpha1.cache_node import EntrySpec

_SETTLED: Final = frozenset({EntryState.CACHED, EntryState.EVICTED})
_NOT_FETCHED: Final = frozenset(
    {
        Reason.QUOTA_EXCEEDED,
        Reason.DISK_PRESSURE,
        Reason.INSUFFICIENT_SPACE,
        Reason.NEVER_FITS,
    }
)


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
    """Make the Node carry exactly these keys of ours.

    Those `on_device` say `gpu`, of the others those `in_memory` say `host`.
    """

    keys: frozenset[str]
    in_memory: frozenset[str] = frozenset()
    on_device: frozenset[str] = frozenset()


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
    """Reserve the entry's bytes and transfer them.

    `through_memory`: what is written stays in the page cache, where it will be locked; the host
    tier promises the same bytes.
    """

    entry: EntrySpec
    through_memory: bool = False


@dataclass(frozen=True, slots=True)
class Repair:
    """Reserve `size_bytes` and transfer the files of the entry that lie in quarantine."""

    entry: EntrySpec
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Promote:
    """Reserve `size_bytes` of host memory and lock the content's pages there."""

    digest: ContentDigest
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Demote:
    """Unlock a content, or stop locking it; its bytes stay on the disk."""

    digest: str
    why: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class LoadOnDevice:
    """Reserve `size_bytes` of GPU memory and copy the version's weights there."""

    key: Key
    digest: ContentDigest
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FreeOnDevice:
    """Give up a version's copy in GPU memory; slower tiers keep theirs.

    `victim` explains one that goes for others' sake.
    """

    key: Key
    why: str = field(compare=False)
    victim: Victim | None = field(default=None, compare=False)


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
    | Promote
    | Demote
    | LoadOnDevice
    | FreeOnDevice
)


@dataclass(frozen=True, slots=True)
class EntryView:
    """What is true of one entry now, and why.

    `tier` is the fastest that holds all its bytes, where that is not the disk. `holds_back`: no
    pod is shown them yet.
    """

    uid: str
    state: EntryState
    reason: Reason
    message: str = ""
    digest: ContentDigest | None = None
    progress_percent: int = 0
    tier: Tier | None = None
    holds_back: bool = False

    @property
    def is_loading(self) -> bool:
        """True while the node tries to bring it here, pauses and turns between tries included.

        False for what is here, was given up, or is not fetched for want of quota or room.
        """
        return self.state not in _SETTLED and self.reason not in _NOT_FETCHED


@dataclass(frozen=True, slots=True)
class Victim:
    """Why a content gives way: its policy's score with the inputs, and for what.

    `kind` is the cause in one word, `cause` in a sentence.
    """

    digest: ContentDigest
    policy: str
    score: float
    inputs: str
    cause: str
    kind: EvictionCause = EvictionCause.ROOM

    def __str__(self) -> str:
        return f"policy={self.policy} score={self.score:.6g} {self.inputs}: {self.cause}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions in order, and what to report.

    `in_memory` and `on_device` are as in SetLabels. `victims` explains each of the `condemned`;
    `host_condemned` are about to be unlocked, and `host_victims` explains those that were locked;
    `gpu_condemned` are about to leave the card. `must_look_at_use` asks for another plan that knows
    which contents are in use. `recheck_at` is when to plan again without an event (monotonic
    seconds).
    """

    actions: tuple[Action, ...] = ()
    entries: tuple[EntryView, ...] = ()
    labels: frozenset[str] = frozenset()
    in_memory: frozenset[str] = frozenset()
    on_device: frozenset[str] = frozenset()
    host_condemned: frozenset[str] = frozenset()
    gpu_condemned: frozenset[Key] = frozenset()
    condemned: frozenset[str] = frozenset()
    victims: tuple[Victim, ...] = ()
    host_victims: tuple[Victim, ...] = ()
    must_look_at_use: bool = False
    recheck_at: float | None = None
