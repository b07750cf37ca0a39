"""What is seen of the host tier: published files whose pages are locked in memory. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from modelcache_agent.decide.host_pressure import CALM, HostPressure

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from modelcache_agent.decide.ledger import Blob, Ledger
    from modelcache_api.names import Reason


@dataclass(frozen=True, slots=True)
class HostSetback:
    """Why a content was not locked; it is tried again at `retry_at` (monotonic seconds)."""

    reason: Reason
    message: str
    retry_at: float


@dataclass(frozen=True, slots=True)
class HostView:
    """The tier's book and what goes on in it.

    In `ledger`, `versions` are the contents that are locked in whole, `reservations` what was
    promised to loads and to transfers that write through memory, and pending release the bytes
    that were given up and that readers still map. `unfit` says why this node cannot lock; the
    capacity is 0 then. `marked` are the keys whose label on the Node may say `host`. `condemned`
    are the victims of the plan before.
    """

    ledger: Ledger
    loading: frozenset[str] = frozenset()
    setbacks: Mapping[str, HostSetback] = field(default_factory=lambda: MappingProxyType({}))
    pressure: HostPressure = CALM
    condemned: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()
    unfit: str | None = None

    @property
    def locked(self) -> frozenset[str]:
        """Contents that are locked in whole."""
        return frozenset(self.ledger.versions)

    def list_blobs(self, leaving: Collection[str] = ()) -> frozenset[Blob]:
        """What is locked but for these contents; shared files once."""
        none: frozenset[Blob] = frozenset()
        return none.union(
            *(b for digest, b in self.ledger.versions.items() if digest not in leaving)
        )
