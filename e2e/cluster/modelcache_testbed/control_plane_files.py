"""The files of a control plane: where they lie, and writing them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.audit import AUDIT_POLICY
from modelcache_testbed.certificates import CertificateAuthority, KeyPair, write_signing_key
from modelcache_testbed.kubeconfig import write_certificate_kubeconfig
from modelcache_testbed.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelcache_testbed.instance import Instance

SERVICE_ADDRESS = "10.96.0.1"
_SERVED_NAMES = (
    LOOPBACK,
    SERVICE_ADDRESS,
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_CLIENTS = {
    "admin": ("modelcache-testbed-admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
}


@dataclass(frozen=True)
class Layout:
    """Where things lie in the instance's folder."""

    folder: Path

    @property
    def keys(self) -> Path:
        """All certificates and keys."""
        return self.folder / "pki"

    @property
    def audit_log(self) -> Path:
        """Who asked the API server for what."""
        return self.folder / "logs" / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """What goes into the audit log."""
        return self.folder / "audit-policy.yaml"

    def pair(self, name: str) -> KeyPair:
        """A certificate and its key."""
        return KeyPair(self.keys / f"{name}.crt", self.keys / f"{name}.key")

    def kubeconfig(self, client: str) -> Path:
        """How a client reaches the API server."""
        return self.folder / ("kubeconfig" if client == "admin" else f"{client}.kubeconfig")


def write_settings(instance: Instance, *, also_serves: Sequence[str] = ()) -> None:
    """Write what the control plane reads; its API server serves under more names if asked."""
    layout = Layout(instance.folder)
    if not layout.keys.exists():
        _write_keys(layout, also_serves)
    layout.audit_log.parent.mkdir(exist_ok=True)
    layout.audit_policy.write_text(AUDIT_POLICY)
    server = f"https://{LOOPBACK}:{instance.read().ports['kube-apiserver']}"
    authority = layout.pair("ca").certificate
    for client in _CLIENTS:
        path = layout.kubeconfig(client)
        write_certificate_kubeconfig(path, server, authority, layout.pair(client))


def _write_keys(layout: Layout, also_serves: Sequence[str]) -> None:
    scratch = layout.keys.with_name("pki.new")
    scratch.mkdir(exist_ok=True)
    authority = CertificateAuthority(scratch, "ca")
    for client, (user, group) in _CLIENTS.items():
        authority.issue(client, user, organizations=[group] if group else [])
    for server in ("kube-apiserver", "kube-controller-manager-server", "kube-scheduler-server"):
        authority.issue(server, server, serves=[*_SERVED_NAMES, *also_serves])
    # etcd trusts an authority of its own, so that no cluster user can reach it.
    CertificateAuthority(scratch, "etcd-ca").issue("etcd", "etcd", serves=[LOOPBACK, "localhost"])
    write_signing_key(scratch, "service-accounts")
    scratch.replace(layout.keys)
