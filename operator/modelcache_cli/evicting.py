"""`evict`: a node's copy of a ModelVersion is asked to go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from modelcache_api.names import ANNOTATION_PREFIX_EVICT, MANAGER_COMMAND_LINE, EntryState
from modelcache_api.v1alpha1.cache_node import EntryStatus
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import SeenNode, see_node
from modelcache_cli.new_version import fetch_version
from modelcache_kube import CACHE_NODES, KubeClient
from modelcache_operator.decide.world import ObjectKey

Object = Mapping[str, Any]
Sleep = Callable[[float], Awaitable[None]]
_LOOK_SECONDS: Final = 1.0
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Eviction:
    """What became of one node's copy."""

    node: str
    is_gone: bool
    told: str


async def ask_to_evict(
    kube: KubeClient, key: ObjectKey, nodes: Sequence[str], now: datetime
) -> str:
    """Ask each node; the uid of the version. Nobody is asked unless all of them may let it go.

    Raises:
        CliError: there is no such version, or a node's copy has to stay; the sentence says why.
    """
    uid = str((await fetch_version(kube, key))["metadata"]["uid"])
    found = [await _fetch_node(kube, node) for node in dict.fromkeys(nodes)]
    refusals = [refusal for raw in found if (refusal := refuse(see_node(raw), uid, key))]
    if refusals:
        everywhere = [see_node(raw) for raw in (await kube.list(CACHE_NODES)).items]
        free = [node.name for node in everywhere if refuse(node, uid, key) is None]
        raise CliError(f"{'; '.join(refusals)}; {tell_free(free)}")
    for raw in found:
        await kube.merge_patch(
            CACHE_NODES,
            raw["metadata"]["name"],
            build_wish(raw, uid, now),
            field_manager=MANAGER_COMMAND_LINE,
        )
    return uid


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
    return None


def tell_free(nodes: Sequence[str]) -> str:
    """Which copies may go instead. Pure."""
    if not nodes:
        return "no copy of it may go now"
    more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    return f"those on {', '.join(sorted(nodes)[:_SHOWN])}{more} may go"


def _find(node: SeenNode, uid: str) -> EntryStatus | None:
    return next((entry for entry in node.status.entries if entry.uid == uid), None)


def build_wish(raw: Object, uid: str, now: datetime) -> dict[str, Any]:
    """The merge patch; wishes about versions that are not there any more are taken away. Pure."""
    metadata = raw["metadata"]
    wanted = {entry["uid"] for entry in raw["spec"].get("entries") or ()}
    old = {
        name: None
        for name in metadata.get("annotations") or {}
        if name.startswith(ANNOTATION_PREFIX_EVICT)
        and name.removeprefix(ANNOTATION_PREFIX_EVICT) not in wanted
    }
    wish = {f"{ANNOTATION_PREFIX_EVICT}{uid}": now.isoformat(timespec="milliseconds")}
    return {"metadata": {"uid": metadata["uid"], "annotations": old | wish}}


async def watch_evictions(
    kube: KubeClient,
    uid: str,
    nodes: Sequence[str],
    seconds: float,
    sleep: Sleep = asyncio.sleep,
) -> list[Eviction]:
    """What becomes of them, until all are gone or the time is over."""
    outcomes: dict[str, Eviction] = {}
    waited = 0.0
    while True:
        for node in dict.fromkeys(nodes):
            if node not in outcomes or not outcomes[node].is_gone:
                outcomes[node] = judge_eviction(see_node(await _fetch_node(kube, node)), uid)
        if waited >= seconds or all(one.is_gone for one in outcomes.values()):
            return list(outcomes.values())
        await sleep(_LOOK_SECONDS)
        waited += _LOOK_SECONDS


def judge_eviction(node: SeenNode, uid: str) -> Eviction:
    """How far the node is. Pure."""
    told = _find(node, uid)
    if told is None:
        return Eviction(node.name, is_gone=True, told="evicted, and not wanted there any more")
    if told.state == EntryState.EVICTED:
        return Eviction(node.name, is_gone=True, told="evicted; it comes back when a pod asks")
    if told.state != EntryState.CACHED:
        return Eviction(node.name, is_gone=True, told=f"evicted, and {told.state} anew")
    message = (
        "asked, and still there: a process has it open, or the node's label is not taken away yet; "
        f"`kubectl modelcache why node/{node.name}` tells when it goes"
    )
    return Eviction(node.name, is_gone=False, told=message)
