"""The chart as Helm renders and installs it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from modelcache_testbed.programs import helm

CHART = Path(__file__).parents[2] / "charts" / "modelcache"
NAMESPACE = "modelcache-system"
RELEASE = "modelcache"
KUBE_VERSION = "1.36.3"

Document = dict[str, Any]


class HelmError(Exception):
    """What Helm printed when it refused."""


def run_helm(*arguments: str, values: Mapping[str, Any] | None = None) -> str:
    """What Helm prints. Raises HelmError."""
    given = ["--values", "-"] if values is not None else []
    result = subprocess.run(
        [str(helm()), *arguments, *given],
        input=json.dumps(values) if values is not None else None,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise HelmError(result.stderr)
    return result.stdout


def render(
    values: Mapping[str, Any] | None = None,
    *,
    kube_version: str = KUBE_VERSION,
    api_versions: Sequence[str] = (),
    namespace: str = NAMESPACE,
    hooks: bool = True,
) -> list[Document]:
    """Everything that the chart makes of these values. Raises HelmError."""
    text = _render(json.dumps(values or {}), kube_version, tuple(api_versions), namespace, hooks)
    return [document for document in yaml.safe_load_all(text) if document]


@lru_cache(maxsize=64)
def _render(
    values: str, kube_version: str, api_versions: tuple[str, ...], namespace: str, hooks: bool
) -> str:
    capabilities = [f"--api-versions={version}" for version in api_versions]
    return run_helm(
        *("template", RELEASE, str(CHART), f"--namespace={namespace}"),
        f"--kube-version={kube_version}",
        *capabilities,
        *(() if hooks else ("--no-hooks",)),
        values=json.loads(values),
    )


def pick(documents: Sequence[Document], kind: str, name: str | None = None) -> Document:
    """The one document of that kind and name."""
    found = pick_all(documents, kind, name)
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def pick_all(documents: Sequence[Document], kind: str, name: str | None = None) -> list[Document]:
    """All documents of that kind, and name if it is given."""
    return [
        item
        for item in documents
        if item["kind"] == kind and name in {None, item["metadata"]["name"]}
    ]


def pod_of(document: Document) -> Document:
    """The pod's spec in a Deployment, DaemonSet or Job."""
    spec: Document = document["spec"]["template"]["spec"]
    return spec


class Release:
    """The chart on a cluster, by Helm with administrator's rights. Waits for no pod."""

    def __init__(self, kubeconfig: Path, namespace: str = NAMESPACE) -> None:
        self._flags = (f"--kubeconfig={kubeconfig}", f"--namespace={namespace}")

    def install(
        self, values: Mapping[str, Any] | None = None, *more: str, chart: Path = CHART
    ) -> str:
        # Not where the chart is to own a namespace that is there.
        created = () if "--take-ownership" in more else ("--create-namespace",)
        flags = (*created, *more, *self._flags)
        return run_helm("install", RELEASE, str(chart), *flags, values=values or {})

    def upgrade(
        self, values: Mapping[str, Any] | None = None, *more: str, chart: Path = CHART
    ) -> str:
        return run_helm("upgrade", RELEASE, str(chart), *more, *self._flags, values=values or {})

    def uninstall(self, *more: str) -> str:
        return run_helm("uninstall", RELEASE, *more, *self._flags)

    def is_installed(self) -> bool:
        return RELEASE in run_helm("list", "--short", "--all", *self._flags).split()
