"""The port over modelcache_kube. Everything is a server-side apply of our own fields."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from modelcache_agent.ports.cluster import CacheNodeView, ClusterError
from modelcache_api import names
from modelcache_api.v1alpha1.cache_node import CacheNode, CacheNodeStatus
from modelcache_kube import (
    CACHE_NODES,
    NODES,
    Change,
    KubeClient,
    KubeError,
    LeaseHeartbeat,
    WatchEvent,
)

_log = logging.getLogger(__name__)
# Others judge our silence by their own clocks; the field tells people what to expect.
_LEASE_RENEWALS: Final = 5


class KubeCluster:
    """One agent's part of the API server."""

    def __init__(
        self,
        kube: KubeClient,
        *,
        node_name: str,
        node_uid: str,
        namespace: str,
        lease_seconds: float,
    ) -> None:
        self._kube = kube
        self._node_name = node_name
        self._node_uid = node_uid
        self._heartbeat = LeaseHeartbeat(
            kube=kube,
            namespace=namespace,
            name=f"{names.AGENT_LEASE_PREFIX}{node_name}",
            identity=node_name,
            duration_seconds=max(1, round(_LEASE_RENEWALS * lease_seconds)),
            field_manager=names.MANAGER_AGENT,
            labels={names.LABEL_AGENT_LEASE: "true"},
            owner={"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid},
        )

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[CacheNodeView | None]]:
        """Our CacheNode after each change."""
        events = self._kube.watch(
            CACHE_NODES,
            field_selector=f"metadata.name={self._node_name}",
            on_error=_tell_watch_error,
        )
        async with aclosing(events):
            yield _views(events)

    async def apply_status(self, cache_node_uid: str, status: CacheNodeStatus) -> None:
        """Our fields of the status.

        The API server ignores a uid in the status of a custom resource, so a successor of the
        CacheNode may be written to once; its uid in the answer tells that it was not ours.
        """
        fields = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        fields.pop("conditions", None)
        # Else definitions of an older release would refuse the whole status.
        if not status.canary_pods:
            fields.pop("canaryPods")
        body = {"metadata": {"name": self._node_name}, "status": fields}
        with _translated():
            written = await self._kube.apply(
                CACHE_NODES, body, field_manager=names.MANAGER_AGENT, subresource="status"
            )
        if written["metadata"]["uid"] != cache_node_uid:
            raise ClusterError("the CacheNode was replaced by another one")

    async def apply_labels(
        self,
        keys: frozenset[str],
        in_memory: frozenset[str] = frozenset(),
        on_device: frozenset[str] = frozenset(),
    ) -> frozenset[str]:
        """One apply takes what is ours away or sets it; what others set in our name goes too."""
        metadata = {"name": self._node_name, "uid": self._node_uid}
        tiers = dict.fromkeys(keys, names.Tier.DISK)
        tiers |= dict.fromkeys(in_memory & keys, names.Tier.HOST)
        tiers |= dict.fromkeys(on_device & keys, names.Tier.GPU)
        labels = {key: tiers[key].label_value for key in sorted(keys)}
        with _translated():
            node = await self._kube.apply(
                NODES,
                {"metadata": {**metadata, "labels": labels}},
                field_manager=names.MANAGER_AGENT_LABELS,
            )
            present = _own_labels(node)
            if present - keys:
                removed: dict[str, None] = dict.fromkeys(sorted(present - keys))
                node = await self._kube.merge_patch(
                    NODES,
                    self._node_name,
                    {"metadata": {"uid": self._node_uid, "labels": removed}},
                    field_manager=names.MANAGER_AGENT_LABELS,
                )
                present = _own_labels(node)
        return present

    async def renew_lease(self) -> None:
        """One apply."""
        with _translated():
            await self._heartbeat.renew()


async def _views(events: AsyncIterator[WatchEvent]) -> AsyncIterator[CacheNodeView | None]:
    seen = False
    async for event in events:
        if event.type is Change.SYNCED:
            if not seen:
                yield None
            continue
        if event.type is Change.DELETED:
            seen = False
            yield None
            continue
        view = _parse(event.object)
        if view is not None:
            seen = True
            yield view


def _parse(obj: dict[str, Any]) -> CacheNodeView | None:
    try:
        parsed = CacheNode.model_validate(obj)
    except ValidationError as error:
        # An operator of another version wrote it: what we hold stays as it is.
        _log.error("the CacheNode cannot be read: %s", error.errors()[0]["msg"])
        return None
    uid = str(obj["metadata"]["uid"])
    return CacheNodeView(
        uid, parsed.spec, parsed.status or CacheNodeStatus(), read_dismissals(obj["metadata"])
    )


def read_dismissals(metadata: Mapping[str, Any]) -> dict[str, float]:
    """When which ModelVersion's copy was asked to go; what is no time is nobody's wish."""
    found = {}
    for key, value in (metadata.get("annotations") or {}).items():
        if not key.startswith(names.ANNOTATION_PREFIX_EVICT):
            continue
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            _log.warning("the annotation %s is no time: %r", key, value)
            continue
        if at.tzinfo is not None:
            found[key.removeprefix(names.ANNOTATION_PREFIX_EVICT)] = at.timestamp()
    return found


def _own_labels(node: dict[str, Any]) -> frozenset[str]:
    labels = node["metadata"].get("labels") or {}
    return frozenset(key for key in labels if key.startswith(names.NODE_LABEL_PREFIX))


def _tell_watch_error(error: KubeError) -> None:
    _log.warning("watching the CacheNode: %s", error)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except KubeError as error:
        raise ClusterError(str(error), error.retry_after) from error
