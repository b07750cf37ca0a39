"""The machine under the nodes: repaired after kills, and as it was when they are gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from modelcache_testbed import LocalCluster, wait_until
from modelcache_testbed.real_nodes.cgroups import hierarchies, members
from modelcache_testbed.real_nodes.layout import instance_cgroup
from modelcache_testbed.real_nodes.namespaces import attached_loops
from modelcache_testbed.web_servers import WebServers

pytestmark = pytest.mark.nodes

SETTINGS = (
    "net/ipv4/ip_forward",
    "net/netfilter/nf_conntrack_max",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
)
FOLDERS = ("/var/lib/kubelet", "/var/lib/modelcache", "/var/log/pods", "/run/containerd/s")


def machine_state():
    """What a cluster must leave as it was: network, mounts, settings of the kernel, folders."""
    settings = {name: content(Path("/proc/sys", name)) for name in SETTINGS}
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    names = {line.split(":")[1].strip() for line in links.splitlines()}
    rules = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
    mounts = {line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()}
    mine = {mount for mount in mounts if not mount.startswith("/tmp/")}  # other tests' mounts
    folders = {name: Path(name).exists() for name in FOLDERS}
    return settings, names, rules.stdout, mine, folders


def content(file):
    try:
        return file.read_text()
    except OSError:
        return None


def traces(folder):
    """Processes, namespaces, mounts, disks and cgroups that an instance left behind."""
    marker = str(folder)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        for name in ("cmdline", "mountinfo"):
            if marker in (content(process / name) or ""):
                found += [f"{process.name}: {name}"]
    cgroup = instance_cgroup(folder).lstrip("/")
    groups = (hierarchy / cgroup for hierarchy in hierarchies("cgroup", "cgroup2"))
    found += [str(group) for group in groups if group.exists()]
    return found + attached_loops(folder) + [str(p) for p in folder.parent.glob(folder.name + "*")]


@pytest.fixture
def solo(own_nodes):
    """A second cluster beside the first, with one node."""
    cluster = LocalCluster.ephemeral(profile="nodes")
    try:
        cluster.up(ephemeral=True, node_names=["n1"])
        yield cluster
    finally:
        cluster.down()


def test_two_clusters_live_side_by_side_and_one_leaves_no_trace(own_nodes):
    before = machine_state()
    second = LocalCluster.ephemeral(profile="nodes")
    try:
        second.up(ephemeral=True, node_names=["n1"])
        web = WebServers.start_on(second)
        assert web.ask("n1", "web") == "n1"
        assert machine_state() == before
    finally:
        second.down()
    assert traces(second.folder) == []
    assert machine_state() == before
    assert all(own_nodes.status().values())
    second.down()


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(("network",), id="the network of all nodes"),
        pytest.param(("node-n1",), id="the holder of a node"),
        pytest.param(("kubelet-n1", "containerd-n1", "kube-proxy", "forwarder"), id="programs"),
    ],
)
def test_up_repairs_after_a_kill(solo, victims):
    web = WebServers.start_on(solo)
    for name in victims:
        os.kill(solo.status()[name], signal.SIGKILL)
    wait_until(lambda: not solo.status()[victims[0]], seconds=10, what="death")
    solo.up(ephemeral=True)
    assert all(solo.status().values())
    wait_until(lambda: serves(web), seconds=90, what="the pod after the repair")


def serves(web):
    try:
        return web.ask("n1", "web") == "n1"
    except Exception:  # noqa: BLE001 - the pod is being started again
        return False


def test_down_after_everything_was_killed_leaves_no_trace(solo):
    WebServers.start_on(solo)
    pids = {*solo.status().values(), *members(instance_cgroup(solo.folder))}
    for pid in sorted(pids):
        # One may end with another that it depends on.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    solo.down()
    assert traces(solo.folder) == []
