"""Which pod's volume shows which content, and what is told while it does not. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.beside import (
    NO_CHANGE,
    Beside,
    BesidePlan,
    NodeFacts,
    list_versions,
    plan_beside,
)
from modelcache_agent.decide.hub_layout import HubLayout, make_hub_layout
from modelcache_api.conditions import truncate
from modelcache_api.limits import MAX_ENTRIES_PER_NODE, MAX_NAME_LENGTH
from modelcache_api.names import (
    VOLUME_MODEL_FOLDER,
    EntryState,
    Reason,
    Tier,
    Track,
    VolumeState,
)
from modelcache_api.v1alpha1.cache_node import CacheKey, CanaryPod
from modelcache_api.volume_progress import ShownVersion

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

    `namespace` and `pod_name` are what the kubelet stated; `asked`, `claimed_namespace` and `track`
    are the pod's words.
    `bound_uid` and `bound_digest` name the content that it shows or was about to show, its own.
    `beside` are the further versions that it shows, `used` those of them, by uid, that processes of
    the pod say they use.
    """

    key: str
    namespace: str
    asked: str
    claimed_namespace: str = ""
    track: str = ""
    bound_uid: str | None = None
    bound_digest: ContentDigest | None = None
    bound_name: str = ""
    is_filled: bool = False
    beside: tuple[Beside, ...] = ()
    used: frozenset[str] = frozenset()
    pod_name: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a volume wants. `uid` is the ModelVersion's, once it is known; `refusal` is final."""

    volume: Volume
    cache: CacheKey | None = None
    uid: str | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Filling:
    """The content that a volume is to show from now on.

    It is wanted in the tier `wanted` and the slower ones, and held in `held_in` and those.
    """

    uid: str
    digest: ContentDigest
    hub: HubLayout | None
    name: str = ""
    wanted: Tier = Tier.DISK
    held_in: Tier = Tier.DISK


@dataclass(frozen=True, slots=True)
class VolumeView:
    """What is true of one volume now. With a `filling` it can be made ready at once.

    `uid` and `digest` name what it shows; `canary_weight` is in percent, None without a canary.
    `beside` says what changes beside that; `versions` tells of all that it may show then.
    `is_list_known` is False before the operator's list of models for this node is.
    """

    key: str
    cache: str
    state: VolumeState
    reason: Reason
    message: str = ""
    percent: int = 0
    size_bytes: int = 0
    filling: Filling | None = None
    uid: str = ""
    digest: str = ""
    canary_weight: int | None = None
    beside: BesidePlan = NO_CHANGE
    versions: tuple[ShownVersion, ...] = ()
    is_list_known: bool = True


def make_wishes(volumes: Iterable[Volume], caches: Iterable[CacheRef]) -> tuple[Wish, ...]:
    """What each volume wants, by the pod's own namespace alone.

    A volume that shows a content already keeps it, whatever its ModelCache refers to now: a pod
    that restarts a container must find all of the version that it began with.
    """
    known = {(cache.namespace, cache.name): cache for cache in caches}
    return tuple(_make_wish(volume, known) for volume in volumes)


def find_mounted(wishes: Iterable[Wish]) -> frozenset[str]:
    """Contents that must stay on the disk: pods' own, and what their processes use beside."""
    volumes = [wish.volume for wish in wishes]
    own = {volume.bound_digest for volume in volumes if volume.bound_digest is not None}
    return frozenset(own | {one.digest for v in volumes for one in v.beside if one.uid in v.used})


def find_attached(wishes: Iterable[Wish]) -> frozenset[str]:
    """Versions that pods here wait for."""
    return frozenset(wish.uid for wish in wishes if wish.uid and not wish.volume.is_filled)


def count_mounts(wishes: Iterable[Wish]) -> Mapping[str, int]:
    """By ModelVersion's uid: volumes that have it for their own, or whose processes use it."""
    return Counter(
        uid for wish in wishes for uid in {wish.uid, *wish.volume.used} if uid is not None
    )


def list_demands(wishes: Iterable[Wish]) -> tuple[CacheKey, ...]:
    """The ModelCaches that live pods use or wait for, sorted, as many as a node may hold.

    Those that are placed here are listed too: a demand that ended with its fulfilment would make
    the operator take the entry away again.
    """
    pairs = {(wish.cache.namespace, wish.cache.name) for wish in wishes if wish.cache is not None}
    first = sorted(pairs)[:MAX_ENTRIES_PER_NODE]
    return tuple(CacheKey(namespace=namespace, name=name) for namespace, name in first)


def list_canary_pods(wishes: Iterable[Wish]) -> tuple[CanaryPod, ...]:
    """Pods whose volumes asked for a canary, each with the version that it shows, sorted.

    As many as a node may tell of.
    """
    shown = {
        (wish.volume.key.partition("/")[0], wish.volume.bound_uid)
        for wish in wishes
        if _is_canary(wish.volume) and wish.volume.is_filled and wish.volume.bound_uid
    }
    first = sorted(shown)[:MAX_ENTRIES_PER_NODE]
    return tuple(CanaryPod(uid=pod, version=version) for pod, version in first)


def make_volume_views(
    wishes: Iterable[Wish],
    spec: CacheNodeSpec | None,
    views: Sequence[EntryView],
    flights: Iterable[Flight],
    *,
    is_unlabelled: bool = False,
    is_pressed: bool = False,
) -> tuple[VolumeView, ...]:
    """The state of each volume. Without a spec nothing can be said of those that show nothing.

    `is_unlabelled`: the Node is known to carry no label but those that are wanted. `is_pressed`:
    the disk is under pressure.
    """
    entries = {entry.uid: entry for entry in spec.entries} if spec is not None else {}
    refs = {(ref.namespace, ref.name): ref for ref in spec.caches} if spec is not None else {}
    facts = NodeFacts(
        entries,
        {view.uid: view for view in views},
        is_unlabelled,
        is_list_known=spec is not None,
        needs_room=is_pressed or any(v.reason is Reason.INSUFFICIENT_SPACE for v in views),
    )
    flights_by_uid = {flight.uid: flight for flight in flights}
    return tuple(
        _show_others(
            wish,
            _view(
                wish,
                entries.get(wish.uid or ""),
                facts.views.get(wish.uid or ""),
                flights_by_uid.get(wish.uid or ""),
                is_spec_known=spec is not None,
            ),
            refs.get((wish.cache.namespace, wish.cache.name)) if wish.cache is not None else None,
            facts,
        )
        for wish in wishes
    )


def _show_others(
    wish: Wish, view: VolumeView, ref: CacheRef | None, facts: NodeFacts
) -> VolumeView:
    """With the weight in force, and with the further versions once the own one is there."""
    weight = None if ref is None or ref.canary_uid is None else ref.canary_weight
    view = replace(view, canary_weight=weight, is_list_known=facts.is_list_known)
    uid, digest, name = view.uid, view.digest, wish.volume.bound_name
    if view.filling is not None:
        uid, digest, name = view.filling.uid, view.filling.digest, view.filling.name
    if not uid:
        return view
    if not name and (entry := facts.entries.get(uid)) is not None:
        name = entry.name or ""
    plan = plan_beside(wish.volume, uid, ref, facts)
    own = ShownVersion(name, uid, digest, VOLUME_MODEL_FOLDER)
    return replace(
        view,
        beside=plan,
        versions=list_versions(own, (*plan.present, *plan.show), ref, facts),
    )


def _make_wish(volume: Volume, known: Mapping[tuple[str, str], CacheRef]) -> Wish:
    name, refusal = _parse_name(volume)
    cache = None if refusal else CacheKey(namespace=volume.namespace, name=name)
    if volume.is_filled:
        return Wish(volume, cache, volume.bound_uid)
    if refusal is not None:
        return Wish(volume, refusal=refusal)
    ref = known.get((volume.namespace, name))
    if ref is None:
        return Wish(volume, cache)
    return Wish(volume, cache, ref.canary_uid if _is_canary(volume) else ref.stable_uid)


def _is_canary(volume: Volume) -> bool:
    return volume.track == Track.CANARY


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
            volume.key,
            label,
            VolumeState.READY,
            Reason.CACHED,
            percent=100,
            size_bytes=size,
            uid=volume.bound_uid or "",
            digest=volume.bound_digest or "",
        )
    if wish.refusal is not None:
        return VolumeView(
            volume.key, label, VolumeState.REFUSED, Reason.VOLUME_REFUSED, wish.refusal
        )
    if entry is None or view is None:
        message = _describe_absence(wish, is_spec_known=is_spec_known)
        return VolumeView(volume.key, label, VolumeState.WAITING, Reason.WAITING, message)
    filling = None
    if view.state is EntryState.CACHED and view.digest is not None and not view.holds_back:
        hub = make_hub_layout(entry.model, view.digest, entry.revision)
        filling = Filling(
            entry.uid, view.digest, hub, entry.name or "", entry.tier, view.tier or Tier.DISK
        )
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


def _describe_absence(wish: Wish, *, is_spec_known: bool) -> str:
    cache = wish.cache
    if cache is None or not is_spec_known:
        return "the agent waits for the operator's list of models for this node"
    version = "a canary of" if _is_canary(wish.volume) else "a"
    return (
        f"this node has not been told of {version} ModelCache {cache.namespace}/{cache.name}: "
        "either the operator is about to, or there is none and the pod waits for it "
        f"(kubectl get modelcache {cache.name} --namespace {cache.namespace})"
    )
