"""`evict`: a node's copy of a ModelVersion is asked to go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from modelcache_api.names import EntryState, Reason
from modelcache_api.v1alpha1.cache_node import EntryStatus
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import SeenNode, see_node
from modelcache_cli.new_version import fetch_version
from modelcache_cli.wishes import Sleep, ask_to_evict, tell_standing, withdraw
from modelcache_kube import CACHE_NODES, ApiUnavailable, Forbidden, KubeClient
from modelcache_operator.decide.world import ObjectKey

Object = Mapping[str, Any]
_T = TypeVar("_T")
_LOOK_SECONDS: Final = 1.0
# The API server tells whole seconds, and a copy of the same second is meant, too.
_ROUNDED: Final = timedelta(seconds=1)
_SHOWN: Final = 5
# Fetched again: so the old bytes are gone.
_ANEW: Final = frozenset({EntryState.PENDING, EntryState.DOWNLOADING})


@dataclass(frozen=True, slots=True)
class Eviction:
    """What became of one node's copy. `is_asked`: the wish could not be taken back."""

    node: str
    is_gone: bool
    said: str
    is_asked: bool = False

    @property
    def told(self) -> str:
        """For people."""
        if self.is_gone:
            return self.said
        return f"{'may still be asked' if self.is_asked else 'asked no more'}; {self.said}"


async def evict_copies(
    kube: KubeClient,
    key: ObjectKey,
    nodes: Sequence[str],
    *,
    seconds: float,
    note: Callable[[str], None],
    sleep: Sleep = asyncio.sleep,
) -> list[Eviction]:
    """Ask each node, and wait. Once nobody waits any more, nobody asks any more.

    A wish that cannot be taken back is noted, and changes nothing of what comes out. Its time is
    the API server's: this machine's clock may be minutes off.

    Raises:
        CliError: there is no such version, or a node's copy has to stay; the sentence says why.
    """
    uid, found = await find_copies(kube, key, nodes)
    now = await kube.read_time() + _ROUNDED
    outcomes: list[Eviction] = []

    async def end() -> frozenset[str]:
        standing = await withdraw(kube, uid, nodes, now, sleep)
        gone = {one.node for one in outcomes if one.is_gone}
        for node, trouble in standing.items():
            if node not in gone:
                note(tell_standing(node, uid, now, trouble))
        return frozenset(standing)

    try:
        await ask_to_evict(kube, found, uid, now)
        outcomes = await watch_evictions(kube, uid, nodes, seconds, sleep)
    finally:
        # Interrupted, too: a copy that had to stay must not go when that is over, unexpected.
        standing = await _finish(end())
    return [replace(one, is_asked=one.node in standing) for one in outcomes]


async def _finish(work: Coroutine[None, None, _T]) -> _T:
    """To its end, although somebody interrupts once more."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def find_copies(
    kube: KubeClient, key: ObjectKey, nodes: Sequence[str]
) -> tuple[str, list[Object]]:
    """The uid of the version, and the CacheNodes, all of which may let it go.

    Raises:
        CliError: there is no such version, or a node's copy has to stay; the sentence says why.
    """
    uid = str((await fetch_version(kube, key))["metadata"]["uid"])
    found = [await _fetch_node(kube, node) for node in dict.fromkeys(nodes)]
    refusals = [refusal for raw in found if (refusal := refuse(see_node(raw), uid, key))]
    if refusals:
        raise CliError(f"{'; '.join(refusals)}; {await _tell_others(kube, uid, key)}")
    return uid, found


async def _tell_others(kube: KubeClient, uid: str, key: ObjectKey) -> str:
    try:
        everywhere = [see_node(raw) for raw in (await kube.list(CACHE_NODES)).items]
    except Forbidden:
        return "which copies may go instead is not known: you may not list cachenodes"
    return tell_free([node.name for node in everywhere if refuse(node, uid, key) is None])


async def _fetch_node(kube: KubeClient, node: str) -> Object:
    found = await kube.get(CACHE_NODES, node)
    if found is None:
        raise CliError(f"no agent has reported from a node {node!r}: `kubectl get cachenodes`")
    return found


def refuse(node: SeenNode, uid: str, key: ObjectKey) -> str | None:
    """Why the node's copy has to stay, or None. Pure."""
    where = f"node {node.name}"
    entry, told = node.spec.find_entry(uid), _find(node, uid)
    if not node.is_alive:
        return f"{where}: its agent is silent, so nobody would let the copy go"
    if entry is None or told is None or told.state != EntryState.CACHED:
        return f"{where} holds no verified copy of {key}"
    if entry.pinned:
        return f"{where}: a ModelCache pins {key}: `kubectl modelcache pin NAME --off` first"
    if not entry.evictable:
        return (
            f"{where}: the operator counts on it for minReady or a rollout of {key}: lower "
            "minReady, or wait until more copies are verified or the rollout is over"
        )
    if told.mounts:
        return f"{where}: volumes of {told.mounts} pods use {key}: it goes when they are gone"
    return _refuse_for_others(node, told)


def _refuse_for_others(node: SeenNode, told: EntryStatus) -> str | None:
    """For what the same bytes are needed that another ModelVersion, or namespace, has there."""
    if told.content_digest is None:
        return None
    same = [
        one
        for one in node.status.entries
        if one.uid != told.uid and one.content_digest == told.content_digest
    ]
    specs = [spec for one in same if (spec := node.spec.find_entry(one.uid)) is not None]
    shared = f"node {node.name}: another ModelVersion has the same bytes there, and"
    if any(spec.pinned for spec in specs):
        return f"{shared} a ModelCache pins it: they go when nobody does"
    if not all(spec.evictable for spec in specs):
        return f"{shared} the operator counts on it for minReady or a rollout"
    if mounts := sum(one.mounts or 0 for one in same):
        return f"{shared} volumes of {mounts} pods use it: they go when those are gone"
    return None


def tell_free(nodes: Sequence[str]) -> str:
    """Which copies may go instead. Pure."""
    if not nodes:
        return "no copy of it may go now"
    more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    return f"those on {', '.join(sorted(nodes)[:_SHOWN])}{more} may go"


def _find(node: SeenNode, uid: str) -> EntryStatus | None:
    return next((entry for entry in node.status.entries if entry.uid == uid), None)


async def watch_evictions(
    kube: KubeClient,
    uid: str,
    nodes: Sequence[str],
    seconds: float,
    sleep: Sleep = asyncio.sleep,
) -> list[Eviction]:
    """What becomes of them, until all are gone or the time is over.

    An API server that is away for a while says nothing of the copies: it is asked again.
    """
    clock = asyncio.get_running_loop().time
    outcomes: dict[str, Eviction] = {}
    waited, begun = 0.0, clock()
    while True:
        for node in dict.fromkeys(nodes):
            if node not in outcomes or not outcomes[node].is_gone:
                outcomes[node] = await _look(kube, uid, node)
        # Requests that are not answered take their time, too.
        is_over = max(waited, clock() - begun) >= seconds
        if is_over or all(one.is_gone for one in outcomes.values()):
            return list(outcomes.values())
        await sleep(_LOOK_SECONDS)
        waited += _LOOK_SECONDS


async def _look(kube: KubeClient, uid: str, node: str) -> Eviction:
    try:
        return judge_eviction(see_node(await _fetch_node(kube, node)), uid)
    except ApiUnavailable as error:
        return Eviction(
            node, is_gone=False, said=f"whether it is still there is not known: {error}"
        )


def judge_eviction(node: SeenNode, uid: str) -> Eviction:
    """How far the node is. What is on its way out has a digest until its bytes are gone. Pure."""
    told = _find(node, uid)
    if told is None:
        message = "not wanted there any more: it goes without being asked"
        return Eviction(node.name, is_gone=True, said=message)
    if told.state == EntryState.EVICTED and told.content_digest is None:
        return Eviction(node.name, is_gone=True, said="evicted; it comes back when a pod asks")
    if told.state in _ANEW and told.reason != Reason.DAMAGED:
        return Eviction(node.name, is_gone=True, said=f"evicted, and {told.state} anew")
    return Eviction(node.name, is_gone=False, said=f"still there: {_tell_why(node, told)}")


def _tell_why(node: SeenNode, told: EntryStatus) -> str:
    if not node.is_alive:
        return "its agent has fallen silent"
    if told.reason == Reason.STORE_ERROR:
        return f"{told.reason}: {told.message}"
    if told.state == EntryState.EVICTED:
        return "its label, or its bytes in a faster tier, were not let go of in time; ask again"
    if told.mounts:
        return f"volumes of {told.mounts} pods use it"
    if told.state == EntryState.CACHED:
        return "a pod waits for it, a process has it open, or its agent needs more time; ask again"
    return f"it is {told.state}{f': {told.message}' if told.message else ''}"
