"""A node's decisions, from the agent's own server through a real API server."""

from __future__ import annotations

import json
import socket

import pytest

from modelcache_agent.adapters.status_http import serve_status
from modelcache_api.decisions import Decision, DecisionKind, Decisions
from modelcache_cli.decisions import fetch_decisions
from modelcache_cli.errors import CliError

pytestmark = pytest.mark.cluster
TOLD = Decisions(decisions=(Decision(at=60, kind=DecisionKind.PRESSURE_BEGAN, cause="92 %"),))


def find_address() -> str:
    """An address of this machine that the API server proxies to: never a loopback one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but the loopback")
        return probe.getsockname()[0]


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def run_pod(cluster, room, name, address) -> None:
    """What a kubelet would report of an agent's pod."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": room,
            "labels": {"app.kubernetes.io/component": "agent"},
        },
        "spec": {"nodeName": f"node-{name}", "containers": [{"name": "agent", "image": "none"}]},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
    cluster.kubectl(
        *("patch", "pod", name, f"-n={room}", "--subresource=status", "--type=merge"),
        *("-p", json.dumps(status)),
    )


async def test_a_nodes_decisions_come_through_the_api_server(
    cluster, kube, room, name, monkeypatch
):
    run_pod(cluster, room, name, find_address())
    port = find_port()
    monkeypatch.setattr("modelcache_cli.decisions._PORT", port)
    async with serve_status(
        port,
        render_metrics=bytes,
        is_alive=lambda: True,
        is_ready=lambda: True,
        render_decisions=lambda: TOLD.model_dump_json(by_alias=True),
    ):
        assert await fetch_decisions(kube, f"node-{name}", room) == TOLD.decisions
    with pytest.raises(CliError, match=f"the agent on node node-{name} does not answer"):
        await fetch_decisions(kube, f"node-{name}", room)
    with pytest.raises(CliError, match="no agent's pod runs on node other"):
        await fetch_decisions(kube, "other", room)
