"""Which further versions of its ModelCache a pod's volume shows beside its own. Pure.

They are there so that one process can hold two versions at once. A volume's own version stays for
the pod's life; a further one comes when it is verified here, and goes when it has left the spec or
gives way, once no label promises it and no process uses it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from modelcache_api.limits import MAX_NAME_LENGTH
from modelcache_api.names import VOLUME_VERSIONS_FOLDER, EntryState, Reason, Track
from modelcache_api.volume_progress import ShownVersion
from modelcache_api.volume_socket import LONGEST_RETURN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modelcache_agent.decide.actions import EntryView
    from modelcache_agent.decide.volumes import Volume
    from modelcache_api.manifest import ContentDigest
    from modelcache_api.v1alpha1.cache_node import CacheRef, EntrySpec

RETURN_SECONDS: Final = 2 * LONGEST_RETURN_SECONDS
"""So long after its start an agent does not know yet what the processes of pods use."""
_FOLDER_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_GIVES_WAY: Final = frozenset({EntryState.EVICTED, EntryState.FAILED})


@dataclass(frozen=True, slots=True)
class Beside:
    """A further version: its ModelVersion's name, which its folder has, and uid; its content."""

    name: str
    uid: str
    digest: ContentDigest


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A further version that is to go.

    `has_left`: its ModelCache wants it here no more. `is_used`: a process of the pod says that it
    uses it. `is_urgent`: the node needs its room.
    """

    beside: Beside
    has_left: bool
    is_used: bool
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class BesidePlan:
    """What a volume shows beside its own version, what is to come, and what may go."""

    present: tuple[Beside, ...] = ()
    show: tuple[Beside, ...] = ()
    hide: tuple[Withdrawal, ...] = ()


NO_CHANGE: Final = BesidePlan()


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of the node, by uid. `is_unlabelled`: no label promises what is not wanted.

    `needs_room`: the disk is under pressure, or a version that is wanted does not fit.

    Before the operator's list is known, nothing comes and nothing goes.
    """

    entries: Mapping[str, EntrySpec]
    views: Mapping[str, EntryView]
    is_unlabelled: bool = False
    is_list_known: bool = True
    needs_room: bool = False


def note_uses(volumes: Iterable[Volume], uses: Mapping[str, frozenset[str]]) -> tuple[Volume, ...]:
    """The volumes, by key, with those of their further versions that processes say they use.

    What a process says of versions that its volume does not show counts for nothing.
    """
    return tuple(
        replace(
            volume,
            used=frozenset(one.uid for one in volume.beside) & uses.get(volume.key, frozenset()),
        )
        for volume in volumes
    )


def find_shown_beside(volumes: Iterable[Volume]) -> frozenset[str]:
    """Contents that volumes show beside their own."""
    return frozenset(one.digest for volume in volumes for one in volume.beside)


def plan_beside(volume: Volume, own: str, ref: CacheRef | None, facts: NodeFacts) -> BesidePlan:
    """What changes beside the version `own`. Without `ref` its ModelCache has left the node.

    A name that another version still has, as after a ModelVersion was made anew, is given once
    that one has gone. What is only being hashed again stays as it is.
    """
    if not facts.is_list_known:
        return BesidePlan(volume.beside)
    wanted = [uid for uid in _list_wanted(ref) if uid != own]
    present = {one.uid for one in volume.beside}
    offers = [_offer(uid, facts) for uid in wanted if uid not in present]
    # Backwards, so that of two with one name the first one wins.
    by_name = {one.name: one for one in reversed(offers) if one is not None}
    show = tuple(by_name[name] for name in sorted(by_name.keys() - {b.name for b in volume.beside}))
    hide = tuple(
        Withdrawal(one, has_left, one.uid in volume.used, facts.needs_room)
        for one in volume.beside
        if (has_left := one.uid not in wanted or one.uid not in facts.entries)
        or _gives_way(one, facts.views.get(one.uid))
    )
    return BesidePlan(volume.beside, show, hide if facts.is_unlabelled else ())


def find_due(
    withdrawal: Withdrawal, *, is_used: bool, used_until: float, unknown_until: float
) -> float | None:
    """When it may go (monotonic seconds, past or to come); None: not while it is used.

    `is_used`: a process says so, or has a file of it open. `used_until`: how long that counts for
    what has left the spec. `unknown_until`: until then nobody may have said it yet. What gives way
    for others, or is damaged, does not wait for that.
    """
    if is_used:
        return used_until if withdrawal.has_left else None
    waits = withdrawal.has_left and not withdrawal.is_urgent
    return unknown_until if waits else float("-inf")


def list_versions(
    own: ShownVersion, beside: Iterable[Beside], ref: CacheRef | None, facts: NodeFacts
) -> tuple[ShownVersion, ...]:
    """What is told of versions that a volume shows or may show, its own first."""
    more = tuple(
        ShownVersion(one.name, one.uid, one.digest, f"{VOLUME_VERSIONS_FOLDER}/{one.name}")
        for one in beside
    )
    return tuple(
        replace(
            one,
            track=_track(one.uid, ref),
            size_bytes=entry.size_bytes if (entry := facts.entries.get(one.uid)) else 0,
            is_leaving=facts.is_list_known and one is not own and one.uid not in _list_wanted(ref),
        )
        for one in (own, *more)
    )


def _list_wanted(ref: CacheRef | None) -> tuple[str, ...]:
    """What is in the spec first."""
    if ref is None:
        return ()
    canary = () if ref.canary_uid is None else (ref.canary_uid,)
    return (ref.stable_uid, *canary, *ref.held_uids)


def _offer(uid: str, facts: NodeFacts) -> Beside | None:
    """The version, if all its bytes are verified here and pods may see them."""
    entry, view = facts.entries.get(uid), facts.views.get(uid)
    if entry is None or view is None or not _is_folder_name(entry.name):
        return None
    if view.state is not EntryState.CACHED or view.digest is None or view.holds_back:
        return None
    return Beside(entry.name or "", uid, view.digest)


def _gives_way(one: Beside, view: EntryView | None) -> bool:
    if view is None:
        return False
    is_other = view.state is EntryState.CACHED and view.digest not in {None, one.digest}
    return view.state in _GIVES_WAY or view.reason is Reason.DAMAGED or is_other


def _track(uid: str, ref: CacheRef | None) -> str:
    if ref is not None and uid == ref.stable_uid:
        return Track.STABLE
    return Track.CANARY if ref is not None and uid == ref.canary_uid else ""


def _is_folder_name(name: str | None) -> bool:
    """What comes from the API server is checked there; a path is worth a second look."""
    return (
        name is not None
        and len(name) <= MAX_NAME_LENGTH
        and _FOLDER_NAME.fullmatch(name) is not None
    )
