"""`--version`: the plugin's release, and the operator's where the cluster tells it."""

from __future__ import annotations

import asyncio
from importlib.metadata import version as installed_version
from typing import Final

from modelcache_cli.checklist.observing import DEPLOYMENTS, OPERATOR
from modelcache_cli.cluster import ClusterChoice, open_cluster
from modelcache_cli.errors import CliError
from modelcache_cli.options import SYSTEM_NAMESPACE
from modelcache_kube import KubeError

# Of Kubernetes' common labels; the chart sets it.
_LABEL: Final = "app.kubernetes.io/version"
# A cluster that is not there must not keep anybody from what this machine knows.
_PATIENCE_SECONDS: Final = 5.0


async def tell_releases(seconds: float = _PATIENCE_SECONDS) -> str:
    """A line for the plugin, and one for the operator of the kubeconfig's cluster if it answers."""
    told = f"kubectl-modelcache {installed_version('modelcache')}\n"
    operator = await _find_operators(seconds)
    return told if operator is None else f"{told}operator {operator}\n"


async def _find_operators(seconds: float) -> str | None:
    try:
        async with asyncio.timeout(seconds), open_cluster(ClusterChoice()) as (kube, _):
            found = await kube.get(DEPLOYMENTS, OPERATOR, SYSTEM_NAMESPACE)
    except (CliError, KubeError, TimeoutError):
        return None
    labels = (found or {"metadata": {}})["metadata"].get("labels") or {}
    release: str | None = labels.get(_LABEL)
    return release
