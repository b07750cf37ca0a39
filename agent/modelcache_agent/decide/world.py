"""What the agent sees, as frozen values. Every decision reads only these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_agent.decide.history import NO_HISTORY, History
from modelcache_api.names import EntryState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelcache_agent.decide.actions import Action
    from modelcache_agent.decide.faults import Fault
    from modelcache_agent.decide.gpu.world import GpuView
    from modelcache_agent.decide.host_world import HostView
    from modelcache_agent.decide.ledger import Blob, Ledger
    from modelcache_agent.decide.scrub import Checkup, Damage
    from modelcache_agent.decide.setbacks import Setback
    from modelcache_agent.decide.watermarks import Pressure
    from modelcache_api.manifest import ContentDigest
    from modelcache_api.v1alpha1.cache_node import EntrySpec


@dataclass(frozen=True, slots=True)
class Origin:
    """Which ModelVersion's source these bytes were read from.

    Keyed by the ModelVersion's uid too: an equal sourceDigest of another namespace proves nothing,
    because its tokens are opaque. `adopted` is True once the operator confirmed that the content
    is the version's content.
    """

    uid: str
    source_digest: str
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """One published content. `last_used` is in Unix seconds.

    `is_verified` is False while the bytes do not look as recorded and were not hashed again yet,
    and while there is `damage`.
    """

    digest: ContentDigest
    blobs: frozenset[Blob]
    last_used: float
    origins: tuple[Origin, ...] = ()
    is_verified: bool = True
    damage: tuple[Damage, ...] = ()
    history: History = NO_HISTORY

    @property
    def size_bytes(self) -> int:
        """Bytes of its blobs, shared ones included."""
        return sum(blob.size_bytes for blob in self.blobs)

    @property
    def load_seconds(self) -> float:
        """What loading it again would take, as far as was measured."""
        return self.history.load.seconds(self.size_bytes)


@dataclass(frozen=True, slots=True)
class Flight:
    """A transfer in progress; it holds a reservation in the ledger.

    Pending while it waits for another node to read the source, or for a limit of the fleet, and
    then takes nobody's turn; `queued` says who is ahead under the limit.
    """

    uid: str
    source_digest: str
    total_bytes: int
    verified_bytes: int = 0
    state: EntryState = EntryState.DOWNLOADING
    queued: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """All inputs of one plan. `now` is monotonic seconds; `free_bytes` is the file system's.

    `node_labels` holds every key of ours that the Node may carry; None while nothing is known.
    `condemned` are the victims of the previous plan: they stay first in line, so that labels do
    not flap. `in_use` holds contents that a process has open or mapped; None: nobody looked yet.
    `flights` are in the order in which they began. `mounted` holds contents that a live pod's
    volume has for its own or its processes use, `beside` what volumes show besides, `attached` the
    uids of versions that one waits for. `scrub_interval` is in
    seconds; None: files are not read again without a cause. `pressure` is that of the file system,
    `kept_free_bytes` what newcomers leave free of it. `fresh` came less than the minimum residency
    ago. `host` or `gpu` None: the tier is off. `unix_now` is now by the clock that `last_used` goes
    by. `dismissed` holds contents that somebody asked to let go.
    """

    entries: tuple[EntrySpec, ...]
    held: tuple[Held, ...]
    ledger: Ledger
    free_bytes: int
    now: float
    flights: tuple[Flight, ...] = ()
    setbacks: Mapping[str, Setback] | None = None
    faults: Mapping[Action, Fault] | None = None
    evicted: frozenset[str] = frozenset()
    in_use: frozenset[str] | None = None
    condemned: frozenset[str] = frozenset()
    node_labels: frozenset[str] | None = None
    mounted: frozenset[str] = frozenset()
    attached: frozenset[str] = frozenset()
    max_models: int = 2
    checkups: tuple[Checkup, ...] = ()
    scrub_interval: float | None = None
    pressure: Pressure | None = None
    kept_free_bytes: int = 0
    fresh: frozenset[str] = frozenset()
    host: HostView | None = None
    unix_now: float = 0.0
    beside: frozenset[str] = frozenset()
    gpu: GpuView | None = None
    dismissed: frozenset[str] = frozenset()
