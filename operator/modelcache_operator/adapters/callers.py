"""ports.callers over the API server."""

from __future__ import annotations

from typing import Final

from modelcache_api import names
from modelcache_kube.client import KubeClient
from modelcache_kube.resources import PODS
from modelcache_operator.decide.grant_access import Claims, PodState

_FINISHED: Final = ("Succeeded", "Failed")


class KubeCallers:
    """TokenReviews and single pods; keeps nothing."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def review(self, token: str) -> Claims | None:
        """The claims of a token that is valid for the grant audience; None for any other."""
        identity = await self._client.token_review(token, (names.GRANT_AUDIENCE,))
        # A server that knows no audiences answers with none: its tokens are for anything.
        if not identity.authenticated or names.GRANT_AUDIENCE not in identity.audiences:
            return None
        return Claims(
            username=identity.username,
            node_name=identity.node_name,
            node_uid=identity.node_uid,
            pod_name=identity.pod_name,
            pod_uid=identity.pod_uid,
        )

    async def pod(self, namespace: str, name: str) -> PodState | None:
        """The pod, or None if it is gone."""
        found = await self._client.get(PODS, name, namespace)
        if found is None:
            return None
        metadata = found["metadata"]
        return PodState(
            uid=metadata["uid"],
            node_name=(found.get("spec") or {}).get("nodeName"),
            is_terminating="deletionTimestamp" in metadata,
            is_finished=(found.get("status") or {}).get("phase") in _FINISHED,
        )
