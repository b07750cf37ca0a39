"""What the loop tells about itself."""

from __future__ import annotations

from typing import Protocol

from modelcache_agent.decide.actions import EntryView
from modelcache_agent.decide.charges import Charges
from modelcache_agent.decide.gpu.world import GpuView
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.decide.measures import Attach, EvictionCause, LoadSource
from modelcache_api.names import Reason, Tier


class Metrics(Protocol):
    """Series describe what is there now: what is gone has none. Labels are fixed words."""

    def observe(
        self, views: tuple[EntryView, ...], ledger: Ledger, free_bytes: int, labels: int
    ) -> None:
        """The state after one turn of the loop."""
        ...

    def note_pressure(self, *, is_pressed: bool) -> None:
        """Whether the store's file system is above its watermarks."""
        ...

    def observe_host(self, ledger: Ledger | None) -> None:
        """The book of locked memory after one turn; None: the tier is off."""
        ...

    def observe_charges(self, charges: Charges) -> None:
        """What namespaces are charged, and what is pinned, after one turn."""
        ...

    def observe_gpu(self, gpu: GpuView | None) -> None:
        """What is seen of GPU memory after one turn; None: the tier is off."""
        ...

    def count_failure(self, reason: Reason) -> None:
        """A transfer, a proposal or an action on the store failed."""
        ...

    def count_attach(self, attach: Attach) -> None:
        """A pod's volume shows its content from now on."""
        ...

    def count_load(self, tier: Tier, source: LoadSource, seconds: float) -> None:
        """A content was brought into a tier."""
        ...

    def count_labelled(self, seconds: float) -> None:
        """So long after its publication a content's label is on the Node."""
        ...

    def count_eviction(self, tier: Tier, cause: EvictionCause, age_seconds: float) -> None:
        """A content gave way in a tier, so long after it had come to this node."""
        ...

    def count_scrubbed(self, size_bytes: int) -> None:
        """Bytes of published files were read again."""
        ...

    def count_damaged(self, pieces: int) -> None:
        """So many pieces of a published file are not what they were."""
        ...

    def count_write(self, target: str, *, succeeded: bool) -> None:
        """A request to the API server that writes: `status`, `labels` or `lease`."""
        ...

    def count_error(self) -> None:
        """A turn of the loop failed by a bug or a broken disk."""
        ...
