"""Which pod's volume shows which content, and what is told while it does not. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.hub_layout import HubLayout, make_hub_layout
from modelcache_api.conditions import truncate
from modelcache_api.limits import MAX_ENTRIES_PER_NODE, MAX_NAME_LENGTH
from modelcache_api.names import EntryState, Reason, VolumeState
from modelcache_api.v1alpha1.cache_node import CacheKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modelcache_agent.decide.actions import EntryView
    from modelcache_agent.decide.world import Flight
    from modelcache_api.manifest import ContentDigest
    from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheRef, EntrySpec

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_STATES: Final = {
    EntryState.PENDING: VolumeState.WAITING,
    EntryState.DOWNLOADING: VolumeState.DOWNLOADING,
    EntryState.VERIFYING: VolumeState.VERIFYING,
    EntryState.CACHED: VolumeState.VERIFYING,
    EntryState.FAILED: VolumeState.FAILED,
    EntryState.EVICTED: VolumeState.WAITING,
}


@dataclass(frozen=True, slots=True)
class Volume:
    """A live pod's volume as it lies in the store.

    `namespace` is what the kubelet stated; `asked` and `claimed_namespace` are the pod's words.
    `bound_uid` and `bound_digest` name the content that it shows or was about to show.
    """

    key: str
    namespace: str
    asked: str
    claimed_namespace: str = ""
    bound_uid: str | None = None
    bound_digest: ContentDigest | None = None
    is_filled: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What a volume wants. `uid` is the ModelVersion's, once it is known; `refusal` is final."""

    volume: Volume
    cache: CacheKey | None = None
    uid: str | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Filling:
    """The content that a volume is to show from now on."""

    uid: str
    digest: ContentDigest
    hub: HubLayout | None


@dataclass(frozen=True, slots=True)
class VolumeView:
    """What is true of one volume now. With a `filling` it can be made ready at once."""

    key: str
    cache: str
    state: VolumeState
    reason: Reason
    message: str = ""
    percent: int = 0
    size_bytes: int = 0
    filling: Filling | None = None


def make_wishes(volumes: Iterable[Volume], caches: Iterable[CacheRef]) -> tuple[Wish, ...]:
    """What each volume wants, by the pod's own namespace alone.

    A volume that shows a content already keeps it, whatever its ModelCache refers to now: a pod
    that restarts a container must find all of the version that it began with.
    """
    known = {(cache.namespace, cache.name): cache.stable_uid for cache in caches}
    return tuple(_make_wish(volume, known) for volume in volumes)


def find_mounted(wishes: Iterable[Wish]) -> frozenset[str]:
    """Contents that must stay on the disk while their pods live."""
    digests = (wish.volume.bound_digest for wish in wishes)
    return frozenset(digest for digest in digests if digest is not None)


def find_attached(wishes: Iterable[Wish]) -> frozenset[str]:
    """Versions that pods here wait for."""
    return frozenset(wish.uid for wish in wishes if wish.uid and not wish.volume.is_filled)


def count_mounts(wishes: Iterable[Wish]) -> Mapping[str, int]:
    """By ModelVersion's uid: volumes that show it or wait for it."""
    counts: dict[str, int] = {}
    for wish in wishes:
        if wish.uid is not None:
            counts[wish.uid] = counts.get(wish.uid, 0) + 1
    return counts


def list_demands(wishes: Iterable[Wish]) -> tuple[CacheKey, ...]:
    """The ModelCaches that live pods use or wait for, sorted, as many as a node may hold.

    Those that are placed here are listed too: a demand that ended with its fulfilment would make
    the operator take the entry away again.
    """
    pairs = {(wish.cache.namespace, wish.cache.name) for wish in wishes if wish.cache is not None}
    first = sorted(pairs)[:MAX_ENTRIES_PER_NODE]
    return tuple(CacheKey(namespace=namespace, name=name) for namespace, name in first)


def make_volume_views(
    wishes: Iterable[Wish],
    spec: CacheNodeSpec | None,
    views: Sequence[EntryView],
    flights: Iterable[Flight],
) -> tuple[VolumeView, ...]:
    """The state of each volume. Without a spec nothing can be said of those that show nothing."""
    entries = {entry.uid: entry for entry in spec.entries} if spec is not None else {}
    views_by_uid = {view.uid: view for view in views}
    flights_by_uid = {flight.uid: flight for flight in flights}
    return tuple(
        _view(
            wish,
            entries.get(wish.uid or ""),
            views_by_uid.get(wish.uid or ""),
            flights_by_uid.get(wish.uid or ""),
            is_spec_known=spec is not None,
        )
        for wish in wishes
    )


def _make_wish(volume: Volume, known: Mapping[tuple[str, str], str]) -> Wish:
    name, refusal = _parse_name(volume)
    cache = None if refusal else CacheKey(namespace=volume.namespace, name=name)
    if volume.is_filled:
        return Wish(volume, cache, volume.bound_uid)
    if refusal is not None:
        return Wish(volume, refusal=refusal)
    return Wish(volume, cache, known.get((volume.namespace, name)))


def _parse_name(volume: Volume) -> tuple[str, str | None]:
    """The ModelCache's name, and why it is not given."""
    namespace, _, name = volume.asked.rpartition("/")
    if not _is_name(volume.namespace):
        return name, "the record of the volume cannot be read: delete the pod"
    for claimed in (namespace, volume.claimed_namespace):
        if claimed and claimed != volume.namespace:
            return name, truncate(
                f"the pod is of namespace {volume.namespace}, its volume asks for a ModelCache of "
                f"{claimed!r}: only those of the own namespace are given"
            )
    if not _is_name(name):
        return name, truncate(f"{name!r} cannot be the name of a ModelCache")
    return name, None


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME_LENGTH and _NAME.fullmatch(text) is not None


def _view(
    wish: Wish,
    entry: EntrySpec | None,
    view: EntryView | None,
    flight: Flight | None,
    *,
    is_spec_known: bool,
) -> VolumeView:
    volume = wish.volume
    label = f"{volume.namespace}/{volume.asked}"
    size = entry.size_bytes if entry is not None else 0
    if volume.is_filled:
        return VolumeView(
            volume.key, label, VolumeState.READY, Reason.CACHED, percent=100, size_bytes=size
        )
    if wish.refusal is not None:
        return VolumeView(
            volume.key, label, VolumeState.REFUSED, Reason.VOLUME_REFUSED, wish.refusal
        )
    if entry is None or view is None:
        message = _describe_absence(wish.cache, is_spec_known=is_spec_known)
        return VolumeView(volume.key, label, VolumeState.WAITING, Reason.WAITING, message)
    filling = None
    if view.state is EntryState.CACHED and view.digest is not None and not view.holds_back:
        hub = make_hub_layout(entry.model, view.digest, entry.revision)
        filling = Filling(entry.uid, view.digest, hub)
    return VolumeView(
        key=volume.key,
        cache=label,
        state=_STATES[view.state],
        reason=view.reason,
        message=view.message,
        percent=_percent(view, flight),
        size_bytes=size,
        filling=filling,
    )


def _percent(view: EntryView, flight: Flight | None) -> int:
    """Finer than the status that goes to the API server: this one is a local file."""
    if flight is None or flight.total_bytes == 0:
        return view.progress_percent
    return min(100, 100 * flight.verified_bytes // flight.total_bytes)


def _describe_absence(cache: CacheKey | None, *, is_spec_known: bool) -> str:
    if cache is None or not is_spec_known:
        return "the agent waits for the operator's list of models for this node"
    return (
        f"this node has not been told of a ModelCache {cache.namespace}/{cache.name}: either the "
        "operator is about to, or there is none and the pod waits for it "
        f"(kubectl get modelcache {cache.name} --namespace {cache.namespace})"
    )
