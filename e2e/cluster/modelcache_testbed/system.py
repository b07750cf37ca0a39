"""ModelCache itself on a cluster: operator replicas and agents as processes, never as admin."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.folders import state_folder
from modelcache_testbed.kube_api import Document
from modelcache_testbed.ports import PortLedger
from modelcache_testbed.processes import ProcessIdentity, read_pid_file, start_detached
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelcache_testbed.cluster import Cluster

NAMESPACE = "modelcache-system"
OPERATOR_ACCOUNT = "modelcache-operator"
AGENT_ACCOUNT = "modelcache-agent"
_ROOT = Path(__file__).resolve().parents[3]
_CA_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/modelcache-ca"
# Loopback and plain http:// are refused by default; the test bed's servers live there.
_SOURCE_POLICY = json.dumps(
    [
        {
            "namespaces": ["*"],
            "uriPrefixes": ["s3://", "hf://", "https://", "http://"],
            "loopback": True,
        }
    ]
)


@dataclass(frozen=True)
class Program:
    """One of our processes; the same object starts it again with the same arguments."""

    name: str
    argv: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]

    @property
    def log_file(self) -> Path:
        """Where it writes its log."""
        return self.folder / f"{self.name}.log"

    @property
    def identity(self) -> ProcessIdentity | None:
        """The living process, or None."""
        identity = read_pid_file(self.folder / f"{self.name}.pid")
        return identity if identity is not None and identity.is_alive() else None

    def last_lines(self, count: int) -> list[str]:
        """The end of its log."""
        return self.log_file.read_text(errors="replace").splitlines()[-count:]

    def assert_alive(self) -> None:
        """Raise TestbedError with the end of its log if it has ended by itself."""
        if self.identity is None:
            lines = self.last_lines(5)
            raise TestbedError(f"{self.name} has ended: {' | '.join(lines) or 'its log is empty'}")

    def start(self) -> ProcessIdentity:
        """Start it unless it runs."""
        running = self.identity
        if running is not None:
            return running
        self.folder.mkdir(parents=True, exist_ok=True)
        return start_detached(
            self.argv,
            pid_file=self.folder / f"{self.name}.pid",
            log_file=self.log_file,
            folder=self.folder,
            environment=self.environment,
        )

    def stop(self, *, grace_seconds: float = 15) -> None:
        """End it in an orderly way; none running is fine."""
        if (running := self.identity) is not None:
            running.end(grace_seconds=grace_seconds)

    def kill(self) -> None:
        """End it at once, as a crash does, and wait until it is gone."""
        if (running := self.identity) is not None:
            running.signal(signal.SIGKILL)
            wait_until(lambda: not running.is_alive(), seconds=10, what=f"death of {self.name}")


class System:
    """CRDs, accounts, operators and agents on one cluster, with files under one folder."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """Refer to the system; nothing is started yet."""
        self.cluster = cluster
        self.folder = folder.absolute()
        self.operators: dict[str, Program] = {}
        self.agents: dict[str, Program] = {}
        self.grants_port, self.operator_http_port = self._reserve_ports()

    def _reserve_ports(self) -> tuple[int, int]:
        self.folder.mkdir(parents=True, exist_ok=True)
        ledger = PortLedger(state_folder() / "ports.json")
        chosen = ledger.reserve(("grants", "http"), self.folder)
        return chosen["grants"], chosen["http"]

    def install(self) -> None:
        """Apply CRDs, accounts and roles, and wait until the CRDs are served."""
        self.cluster.apply(_ROOT / "crds")
        files = _ROOT / "charts" / "modelcache" / "files"
        self.cluster.apply(files / "accounts.yaml")
        self.cluster.apply(files)
        self.cluster.kubectl(
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            *(
                f"crd/{name}.modelcache.io"
                for name in ("modelversions", "modelcaches", "modelcachequotas", "cachenodes")
            ),
        )

    def add_operator(
        self,
        name: str = "operator-0",
        *,
        extra: Sequence[str] = (),
        primary: bool = True,
        python: Sequence[str] = ("-m", "modelcache_operator"),
    ) -> Program:
        """Start one replica. Agents talk to the primary one, and may read from each other.

        ``python`` is what Python runs.
        """
        credentials = self.cluster.service_account_kubeconfig(
            NAMESPACE, OPERATOR_ACCOUNT, self.folder / name
        )
        policy = self.folder / "source-policy.json"
        policy.write_text(_SOURCE_POLICY)
        ports = (self.grants_port, self.operator_http_port) if primary else self._reserve_ports()
        argv = (
            *(sys.executable, *python),
            f"--kubeconfig={credentials.kubeconfig}",
            f"--namespace={NAMESPACE}",
            f"--agent-service-account={AGENT_ACCOUNT}",
            f"--grants-bind=127.0.0.1:{ports[0]}",
            "--grants-names=localhost,127.0.0.1",
            f"--http-port={ports[1]}",
            f"--identity={name}",
            f"--source-policy={policy}",
            "--peers=true",
            *extra,
        )
        program = Program(name, argv, self.folder / name, _environment())
        self.operators[name] = program
        program.start()
        return program

    def add_agent(
        self, node: str, *, capacity: str = "2Gi", extra: Sequence[str] = (), start: bool = True
    ) -> Program:
        """Prepare the agent of a node with its own store and credentials; start it."""
        folder = self.folder / f"agent-{node}"
        credentials = self.cluster.agent_credentials(node, NAMESPACE, AGENT_ACCOUNT, folder)
        store = self.store_of(node)
        store.mkdir(parents=True, exist_ok=True)
        argv = (
            *(sys.executable, "-m", "modelcache_agent"),
            f"--node-name={node}",
            f"--store={store}",
            f"--capacity={capacity}",
            f"--kubeconfig={credentials.kubeconfig}",
            f"--namespace={NAMESPACE}",
            f"--operator-url=https://127.0.0.1:{self.grants_port}",
            f"--operator-ca-file={self.authority_file}",
            f"--grant-token-file={credentials.grant_token_file}",
            "--metrics-port=0",
            # How full this machine's disk is, is none of its business.
            "--disk-high-watermark=100",
            "--peers=true",
            "--peer-address=127.0.0.1",
            "--peer-port=0",
            *extra,
        )
        program = Program(f"agent-{node}", argv, folder, _environment())
        self.agents[node] = program
        if start:
            self.fetch_authority()
            program.start()
        return program

    @property
    def authority_file(self) -> Path:
        """The operator's CA certificate, as a pod would mount it."""
        return self.folder / "operator-ca.crt"

    def fetch_authority(self) -> None:
        """Wait for the operator's CA and lay it where agents read it."""
        seen: Document = {}

        def is_published() -> bool:
            for operator in self.operators.values():
                operator.assert_alive()
            found = self.cluster.api.find(_CA_PATH)
            seen.update(found or {})
            return "ca.crt" in seen.get("data", {})

        wait_until(is_published, seconds=60, what="the operator's CA in ConfigMap modelcache-ca")
        self.authority_file.write_text(seen["data"]["ca.crt"])

    def store_of(self, node: str) -> Path:
        """The folder of a node's store."""
        return self.folder / "stores" / node

    def stop(self) -> None:
        """End agents and operators that this or an earlier process started under the folder."""
        for pid_file in sorted(self.folder.glob("*/*.pid")):
            identity = read_pid_file(pid_file)
            if identity is not None and identity.is_alive():
                identity.end(grace_seconds=15)

    def remove(self) -> None:
        """End everything and delete the folder; nothing being there is fine."""
        self.stop()
        PortLedger(state_folder() / "ports.json").release(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    # A pod's environment holds nothing of the machine's: no cloud identity, no proxies.
    kept = ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "TMPDIR", "COVERAGE_PROCESS_START")
    clean = {name: os.environ[name] for name in kept if name in os.environ}
    return clean | {"HOME": "/nonexistent", "PYTHONUNBUFFERED": "1"}
