"""The CacheNode's status as the agent reports it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from modelcache_api.conditions import truncate
from modelcache_api.names import EntryState, Tier
from modelcache_api.quantities import format_bytes
from modelcache_api.v1alpha1.cache_node import (
    CacheKey,
    CacheNodeStatus,
    CanaryPod,
    EntryStatus,
    PeerStatus,
    TierStatus,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelcache_agent.decide.actions import EntryView
    from modelcache_agent.decide.gpu.world import GpuView
    from modelcache_agent.decide.host_world import HostView
    from modelcache_agent.decide.ledger import Ledger
    from modelcache_agent.decide.watermarks import Pressure

_TENTH: Final = 10


def make_status(  # noqa: PLR0913 - one parameter for each part of the status
    views: Sequence[EntryView],
    ledger: Ledger,
    *,
    host: HostView | None = None,
    gpu: GpuView | None = None,
    agent_version: str,
    mounts: Mapping[str, int] | None = None,
    demands: tuple[CacheKey, ...] = (),
    canary_pods: tuple[CanaryPod, ...] = (),
    peer: PeerStatus | None = None,
    pressure: Pressure | None = None,
) -> CacheNodeStatus:
    """The whole status but for the conditions, which are the operator's."""
    disk = make_disk_status(ledger, pressure)
    memory = None if host is None or host.unfit is not None else make_host_status(host.ledger)
    card = None if gpu is None or gpu.why_off is not None else make_gpu_status(gpu)
    return CacheNodeStatus(
        agent_version=agent_version,
        tiers=tuple(tier for tier in (disk, memory, card) if tier is not None),
        entries=tuple(
            _make_entry(view, (mounts or {}).get(view.uid))
            for view in sorted(views, key=lambda view: view.uid)
        ),
        demands=demands,
        canary_pods=canary_pods,
        disk_summary=_summarize(disk),
        host_summary=_summarize_host(host, memory),
        host_unfit=truncate(host.unfit) if host is not None and host.unfit is not None else None,
        gpu_summary=_summarize_gpu(gpu, card),
        models=sum(view.state is EntryState.CACHED for view in views),
        peer=peer,
        failed=sum(view.state is EntryState.FAILED for view in views),
    )


def strip_foreign_fields(status: CacheNodeStatus) -> CacheNodeStatus:
    """What of a status is ours, in our order, so that it can be compared with `make_status`."""
    entries = tuple(sorted(status.entries, key=lambda entry: entry.uid))
    return status.model_copy(update={"conditions": (), "entries": entries})


def make_disk_status(ledger: Ledger, pressure: Pressure | None = None) -> TierStatus:
    """The disk's book. Bytes of running transfers move in tenths, as their progress does."""
    moved = sum(
        _in_tenths(ledger.partials.get(uid, 0), size) for uid, size in ledger.reservations.items()
    )
    promised = sum(ledger.reservations.values())
    resting = sum(size for uid, size in ledger.partials.items() if uid not in ledger.reservations)
    return TierStatus(
        name=Tier.DISK,
        capacity_bytes=ledger.capacity_bytes,
        used_bytes=ledger.published_bytes + ledger.quarantined_bytes + resting + moved,
        reserved_bytes=promised - moved,
        pending_release_bytes=ledger.pending_release_bytes,
        pressure=None if pressure is None else truncate(pressure.message),
    )


def make_host_status(ledger: Ledger) -> TierStatus:
    """The book of locked memory. Lingering bytes are pending release here."""
    return TierStatus(
        name=Tier.HOST,
        capacity_bytes=ledger.capacity_bytes,
        used_bytes=ledger.used_bytes,
        reserved_bytes=ledger.reserved_bytes,
        pending_release_bytes=ledger.pending_release_bytes,
    )


def make_gpu_status(gpu: GpuView) -> TierStatus:
    """The book of the card. What others leave moves in tenths, so that it is not told each time."""
    capacity, ceiling = gpu.budget.capacity_bytes, gpu.budget.ceiling_bytes
    return TierStatus(
        name=Tier.GPU,
        capacity_bytes=max(_in_tenths(capacity, ceiling), gpu.held_bytes + gpu.lingering_bytes),
        used_bytes=gpu.held_bytes,
        reserved_bytes=sum(gpu.loading.values()),
        pending_release_bytes=gpu.lingering_bytes,
    )


def _summarize(tier: TierStatus) -> str:
    return f"{format_bytes(tier.used_bytes)}/{format_bytes(tier.capacity_bytes)}"


def _summarize_host(host: HostView | None, memory: TierStatus | None) -> str | None:
    if memory is not None:
        return _summarize(memory)
    return None if host is None else "unfit"


def _summarize_gpu(gpu: GpuView | None, card: TierStatus | None) -> str | None:
    if gpu is None:
        return None
    if card is None:
        return "unavailable"
    return f"{_summarize(card)} emulated" if gpu.is_emulated else _summarize(card)


def _in_tenths(part: int, whole: int) -> int:
    return 0 if whole == 0 else whole * (_TENTH * min(part, whole) // whole) // _TENTH


def _make_entry(view: EntryView, mounts: int | None) -> EntryStatus:
    return EntryStatus(
        uid=view.uid,
        state=view.state,
        content_digest=view.digest,
        tier=(view.tier or Tier.DISK) if view.state is EntryState.CACHED else None,
        progress_percent=view.progress_percent,
        reason=view.reason,
        message=truncate(view.message),
        mounts=mounts,
    )
