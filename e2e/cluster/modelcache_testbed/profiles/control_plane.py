"""Profile ``control-plane``: a real control plane on the loopback, nodes registered by API.

No containers and no root: pods are scheduled and bound, but nothing runs them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed import nodes
from modelcache_testbed.components import Component
from modelcache_testbed.control_plane_files import Layout, write_settings
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.kube_api import KubeApi
from modelcache_testbed.ports import LOOPBACK
from modelcache_testbed.probes import answers_https
from modelcache_testbed.programs import (
    ETCD,
    KUBE_APISERVER,
    KUBE_CONTROLLER_MANAGER,
    KUBE_SCHEDULER,
    Program,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelcache_testbed.cluster import Cluster
    from modelcache_testbed.instance import Instance

SERVICE_RANGE = "10.96.0.0/16"
ISSUER = "https://kubernetes.default.svc.cluster.local"
NODE_GRACE_SETTING = "node_grace_seconds"
# Longer than any test takes the API server away: no played node is lost by accident.
DEFAULT_NODE_GRACE_SECONDS = 900


@dataclass(frozen=True)
class Exposure:
    """Where the API server can be reached, and what else it is told."""

    bind_address: str = LOOPBACK
    advertise_address: str = LOOPBACK
    endpoint_reconciler: str = "none"  # a loopback address may not stand in an Endpoints
    more_flags: Mapping[str, object] = field(default_factory=dict)


def check_machine(_instance: Instance) -> None:
    """Any machine will do."""


def programs() -> Sequence[Program]:
    """Return the programs that must be built first."""
    return (ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER)


def port_names() -> Sequence[str]:
    """Return a name for each port that is needed."""
    return ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def kubeconfig(instance: Instance) -> Path:
    """Return the administrator's kubeconfig."""
    return Layout(instance.folder).kubeconfig("admin")


def audit_log(instance: Instance) -> Path:
    """Return the API server's audit log."""
    return Layout(instance.folder).audit_log


def prepare(instance: Instance, _node_names: Sequence[str] = ()) -> None:
    """Write keys once, and the files that name ports each time."""
    write_settings(instance)


def stages(instance: Instance) -> Sequence[Sequence[Component]]:
    """Return the components; each stage is ready before the next starts."""
    *first, last = control_plane(instance, Exposure())
    return (*first, [*last, _node_keeper(Layout(instance.folder), instance)])


def control_plane(instance: Instance, exposure: Exposure) -> Sequence[Sequence[Component]]:
    """Return the control plane proper, without anything that plays nodes."""
    record = instance.read()
    layout = Layout(instance.folder)
    grace = int(record.settings.get(NODE_GRACE_SETTING, DEFAULT_NODE_GRACE_SECONDS))
    return (
        [_etcd(layout, record.ports)],
        [_apiserver(layout, record.ports, exposure)],
        [_controller_manager(layout, record.ports, grace), _scheduler(layout, record.ports)],
    )


def add_nodes(cluster: Cluster, names: Sequence[str]) -> None:
    """Register played nodes, all at once, and wait until pods can be scheduled there."""
    for name in names:
        cluster.add_node(name, wait=False)
    for name in names:
        nodes.await_schedulable(cluster.api, name)


def load_image(_instance: Instance, _archive: Path) -> None:
    """Refuse: nothing runs containers."""
    raise TestbedError("profile control-plane runs no containers: use the profile nodes or kind")


def clean_up(_instance: Instance) -> None:
    """Nothing is made but processes and files, and those end with the instance."""


def _flags(**values: object) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def _etcd(layout: Layout, ports: dict[str, int]) -> Component:
    client, peer = (f"https://{LOOPBACK}:{ports[name]}" for name in ("etcd", "etcd-peer"))
    pair, authority = layout.pair("etcd"), layout.pair("etcd-ca").certificate
    argv = [str(ETCD.path), "--unsafe-no-fsync", "--client-cert-auth", "--peer-client-cert-auth"]
    argv += _flags(
        name="default",
        data_dir=layout.folder / "etcd",
        listen_client_urls=client,
        advertise_client_urls=client,
        listen_peer_urls=peer,
        initial_advertise_peer_urls=peer,
        initial_cluster=f"default={peer}",
        cert_file=pair.certificate,
        key_file=pair.key,
        trusted_ca_file=authority,
        peer_cert_file=pair.certificate,
        peer_key_file=pair.key,
        peer_trusted_ca_file=authority,
        auto_compaction_retention="5m",
        log_level="warn",
    )
    return Component(
        "etcd", tuple(argv), lambda: answers_https(f"{client}/health", authority, pair)
    )


def _apiserver(layout: Layout, ports: dict[str, int], exposure: Exposure) -> Component:
    serving, etcd, tokens = map(layout.pair, ("kube-apiserver", "etcd", "service-accounts"))
    argv = [str(KUBE_APISERVER.path)]
    argv += _flags(
        bind_address=exposure.bind_address,
        advertise_address=exposure.advertise_address,
        endpoint_reconciler_type=exposure.endpoint_reconciler,
        secure_port=ports["kube-apiserver"],
        etcd_servers=f"https://{LOOPBACK}:{ports['etcd']}",
        etcd_cafile=layout.pair("etcd-ca").certificate,
        etcd_certfile=etcd.certificate,
        etcd_keyfile=etcd.key,
        tls_cert_file=serving.certificate,
        tls_private_key_file=serving.key,
        client_ca_file=layout.pair("ca").certificate,
        authorization_mode="Node,RBAC",
        enable_admission_plugins="NodeRestriction",
        allow_privileged="true",
        service_cluster_ip_range=SERVICE_RANGE,
        service_account_issuer=ISSUER,
        service_account_key_file=tokens.certificate.with_suffix(".pub"),
        service_account_signing_key_file=tokens.key,
        audit_policy_file=layout.audit_policy,
        audit_log_path=layout.audit_log,
        audit_log_maxsize=1024,
        audit_log_maxbackup=1,
        **exposure.more_flags,
    )
    # Open watches hold up its own way of ending for a minute.
    return Component(
        "kube-apiserver", tuple(argv), lambda: _admin(layout).is_ready(), stop_seconds=2
    )


def _admin(layout: Layout) -> KubeApi:
    return KubeApi(layout.kubeconfig("admin"))


def _controller_manager(layout: Layout, ports: dict[str, int], grace: int) -> Component:
    name = "kube-controller-manager"
    authority = layout.pair("ca")
    argv = [str(KUBE_CONTROLLER_MANAGER.path), *_clients_flags(layout, name, ports[name])]
    argv += _flags(
        root_ca_file=authority.certificate,
        cluster_signing_cert_file=authority.certificate,
        cluster_signing_key_file=authority.key,
        service_account_private_key_file=layout.pair("service-accounts").key,
        use_service_account_credentials="true",
        node_monitor_grace_period=f"{grace}s",
        kube_api_qps=500,  # the default delays the start by seconds
        kube_api_burst=1000,
    )

    def is_ready() -> bool:
        healthy = answers_https(f"https://{LOOPBACK}:{ports[name]}/healthz", authority.certificate)
        return healthy and _pods_can_be_created(_admin(layout))

    return Component(name, tuple(argv), is_ready)


def _pods_can_be_created(api: KubeApi) -> bool:
    needed = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    try:
        return all(api.find(f"/api/v1/namespaces/default/{path}") for path in needed)
    except TestbedError:
        return False


def _scheduler(layout: Layout, ports: dict[str, int]) -> Component:
    name = "kube-scheduler"
    argv = [str(KUBE_SCHEDULER.path), *_clients_flags(layout, name, ports[name])]
    url, authority = f"https://{LOOPBACK}:{ports[name]}/healthz", layout.pair("ca").certificate
    return Component(name, tuple(argv), lambda: answers_https(url, authority))


def _clients_flags(layout: Layout, name: str, port: int) -> list[str]:
    own, serving = layout.kubeconfig(name), layout.pair(f"{name}-server")
    return _flags(
        kubeconfig=own,
        authentication_kubeconfig=own,
        authorization_kubeconfig=own,
        bind_address=LOOPBACK,
        secure_port=port,
        tls_cert_file=serving.certificate,
        tls_private_key_file=serving.key,
        # A single replica without a lease neither waits at the start nor ends in an outage.
        leader_elect="false",
    )


def _node_keeper(layout: Layout, instance: Instance) -> Component:
    name = "node-keeper"
    package_root = Path(__file__).resolve().parents[2]
    ready_file = layout.folder / f"{name}.ready"
    module = "modelcache_testbed.keep_nodes"
    argv = (sys.executable, "-m", module, str(layout.kubeconfig("admin")), str(ready_file))

    def is_ready() -> bool:
        said = ready_file.read_text() if ready_file.exists() else ""
        return said == str(instance.supervisor.pid_of(name))

    return Component(name, argv, is_ready, environment={"PYTHONPATH": str(package_root)})
