"""`why`: reads what is asked about and puts the answer together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modelcache_api.decisions import Decision
from modelcache_cli.decisions import describe_decisions, fetch_decisions, name_versions
from modelcache_cli.errors import CliError
from modelcache_cli.why import Finding, Target, TargetKind, judge_object, read_target
from modelcache_cli.why_pod import explain_pod
from modelcache_kube import KubeClient


@dataclass(frozen=True, slots=True)
class Answer:
    """How the object stands, and, of a node, what it decided.

    `decisions` is None where there are none to tell; `trouble` says why they cannot be read.
    """

    target: Target
    finding: Finding
    decisions: tuple[Decision, ...] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""

    def tell(self) -> str:
        """One line, and for a node its last decisions."""
        line = f"{self.finding.tell(self.target)}\n"
        if self.trouble:
            return f"{line}its decisions cannot be read: {self.trouble}\n"
        if self.decisions is None:
            return line
        if not self.decisions:
            return f"{line}it has evicted nothing yet\n"
        return line + describe_decisions(self.decisions, self.names)

    def to_document(self) -> dict[str, Any]:
        """The same for programs. `cure` is empty where there is nothing to do."""
        told: dict[str, Any] = {
            "kind": self.target.kind.value,
            "namespace": self.target.namespace,
            "name": self.target.name,
            "reason": self.finding.reason,
            "message": self.finding.message,
            "cure": self.finding.find_cure(),
        }
        if self.target.kind is TargetKind.NODE:
            decisions = self.decisions
            told["decisions"] = (
                None
                if decisions is None
                else [one.model_dump(mode="json", by_alias=True) for one in decisions]
            )
            told["trouble"] = self.trouble
        return told


async def find_answer(kube: KubeClient, target: Target, system_namespace: str) -> Answer:
    """What is known of the object.

    Raises:
        CliError: there is no such object, or a pod uses no ModelCache.
    """
    found = await read_target(kube, target)
    if target.kind is TargetKind.POD:
        return Answer(target, await explain_pod(kube, target, found))
    finding = judge_object(target.kind, found)
    if target.kind is not TargetKind.NODE:
        return Answer(target, finding)
    try:
        decisions = await fetch_decisions(kube, target.name, system_namespace)
    except CliError as error:
        return Answer(target, finding, trouble=str(error))
    names = await name_versions(kube) if decisions else {}
    return Answer(target, finding, decisions, names)
