"""The last decisions of a node, read from its agent through the API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from pydantic import ValidationError

from modelcache_api.decisions import PATH_DECISIONS, Decision, DecisionKind, Decisions
from modelcache_api.names import Tier
from modelcache_api.quantities import format_bytes
from modelcache_cli.errors import CliError
from modelcache_kube import MODEL_VERSIONS, PODS, Forbidden, KubeClient, KubeError

_AGENTS: Final = "app.kubernetes.io/component=agent"
_PORT: Final = 9404


async def fetch_decisions(kube: KubeClient, node: str, system: str) -> tuple[Decision, ...]:
    """The node's last decisions, the newest first.

    Raises:
        CliError: they cannot be read; the sentence says why and what helps.
    """
    try:
        pods = await kube.list(
            PODS, system, label_selector=_AGENTS, field_selector=f"spec.nodeName={node}"
        )
        running = [p for p in pods.items if (p.get("status") or {}).get("phase") == "Running"]
        if not running:
            raise CliError(
                f"no agent's pod runs on node {node} in namespace {system}: give another one by "
                "--system-namespace, or check the agents' DaemonSet"
            )
        name = running[0]["metadata"]["name"]
        answer = await kube.read_from_pod(name, system, port=_PORT, path=PATH_DECISIONS)
    except Forbidden as error:
        raise CliError(
            f"you may not read from agents' pods in namespace {system}: the chart's Role "
            f"modelcache-why there allows it, once it is bound to you ({error})"
        ) from error
    except KubeError as error:
        raise CliError(f"the agent on node {node} does not answer: {error}") from error
    try:
        return Decisions.model_validate(answer).decisions
    except ValidationError as error:
        raise CliError(
            f"the agent on node {node} tells what this release does not know: use the "
            "kubectl-modelcache of the agents' release"
        ) from error


async def name_versions(kube: KubeClient) -> Mapping[str, str]:
    """Namespace and name of ModelVersions by uid; empty where they may not be listed."""
    try:
        versions = await kube.list(MODEL_VERSIONS)
    except Forbidden:
        return {}
    found = (one["metadata"] for one in versions.items)
    return {meta["uid"]: f"{meta['namespace']}/{meta['name']}" for meta in found}


def describe_decisions(decisions: Iterable[Decision], names: Mapping[str, str]) -> str:
    """A line for each decision: when, what, with which score, and for what."""
    return "".join(f"{_describe(one, names)}\n" for one in decisions)


def _describe(one: Decision, names: Mapping[str, str]) -> str:
    at = datetime.fromtimestamp(one.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    what = one.kind.value if one.tier is Tier.DISK else f"{one.kind} ({one.tier})"
    if one.kind is not DecisionKind.EVICTED:
        return f"{at} {what}: {one.cause}"
    held = ", ".join(names.get(uid, f"uid {uid}") for uid in one.uids) or "no ModelVersion"
    score = "" if one.score is None else f" score={one.score:.6g}"
    cause = one.cause
    for uid, name in names.items():
        cause = cause.replace(f"uid={uid} ", f"{name} ")
    return (
        f"{at} {what}: {held} ({format_bytes(one.size_bytes)}, {one.digest}) "
        f"policy={one.policy}{score} {one.inputs}: {cause}"
    )
