"""`why`: reads what is asked about and puts the answer together."""

from __future__ import annotations

from modelcache_cli.decisions import describe_decisions, fetch_decisions, name_versions
from modelcache_cli.errors import CliError
from modelcache_cli.why import Target, TargetKind, judge_object, read_target
from modelcache_cli.why_pod import explain_pod
from modelcache_kube import KubeClient


async def explain(kube: KubeClient, target: Target, system_namespace: str) -> str:
    """One line, and for a node its last decisions.

    Raises:
        CliError: there is no such object, or a pod uses no ModelCache.
    """
    found = await read_target(kube, target)
    if target.kind is TargetKind.POD:
        finding = await explain_pod(kube, target, found)
    else:
        finding = judge_object(target.kind, found)
    line = f"{finding.tell(target)}\n"
    if target.kind is TargetKind.NODE:
        return line + await _tell_decisions(kube, target.name, system_namespace)
    return line


async def _tell_decisions(kube: KubeClient, node: str, system_namespace: str) -> str:
    try:
        decisions = await fetch_decisions(kube, node, system_namespace)
    except CliError as error:
        return f"its decisions cannot be read: {error}\n"
    if not decisions:
        return "it has evicted nothing yet\n"
    return describe_decisions(decisions, await name_versions(kube))
