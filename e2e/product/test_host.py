"""A model in the memory of real nodes: who reads it, who pays for it, and an agent that goes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from modelcache_api.quantities import parse_bytes
from modelcache_testbed import wait_until
from modelcache_testbed.models import build_cache, build_version, make_model
from modelcache_testbed.product import AGENTS, SYSTEM, TEAM, build_pod
from modelcache_testbed.product_store import ENDPOINT, reached_bucket
from modelcache_testbed.real_nodes.cgroups import hierarchies

pytestmark = pytest.mark.nodes

NAME = "hosted"
SIZE_BYTES = 40_000_000
LITTLE_BYTES = 1 << 20
# A command that was waited for counts for the shell; the first round loads the commands themselves.
READ = """
io() { sed -n 's/^read_bytes: //p' /proc/$$/io; }
read_by() { sha256sum < $1; }
read_by $MODELCACHE_PATH/config.json > /tmp/sum; io > /tmp/before
read_by $MODELCACHE_PATH/model.safetensors > /tmp/sum; io > /tmp/after
echo $(cat /tmp/before /tmp/after /tmp/sum)
"""


def read_model(product, pod):
    """Bytes that the disk was asked for, and the sha256 of what was read."""
    before, after, sha256, _ = product.run(pod, READ).split()
    return int(after) - int(before), sha256


def memory_cgroup(pod, container="main"):
    """The folder of a container's memory cgroup, as this machine sees it."""
    (memory,) = (path for path in hierarchies() if path.name == "memory")
    (status,) = (s for s in pod["status"]["containerStatuses"] if s["name"] == container)
    found = status["containerID"].rpartition("/")[2]
    (folder,) = (path for path in memory.rglob(f"*{found}*") if path.is_dir())
    return folder


def figure(folder: Path, name: str) -> int:
    return int((folder / name).read_text())


def stat(folder: Path) -> dict[str, int]:
    lines = re.findall(r"^(\w+) (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
    return {name: int(number) for name, number in lines}


def agent_of(product, node):
    return next(p for p in product.pods(SYSTEM, AGENTS) if p["spec"]["nodeName"] == node)


def label_value(product, node):
    path = f"/apis/modelcache.io/v1alpha1/namespaces/{TEAM}/modelversions/{NAME}"
    key = product.cluster.api.get(path)["status"]["nodeLabelKey"]
    return product.labels()[node].get(key)


@pytest.fixture(scope="module")
def hosted(product):
    """A model of tier Host on two nodes, and a pod on one of them; the sha256 of its weights."""
    files = make_model(SIZE_BYTES, seed=80)
    with reached_bucket(product, "models") as bucket:
        for path, body in files.items():
            bucket.put(f"{NAME}/{path}", body)
    cluster, where = product.cluster, (f"--namespace={TEAM}", f"modelcache/{NAME}")
    cluster.apply([build_version(TEAM, NAME, f"s3://models/{NAME}", ENDPOINT)])
    cluster.apply([build_cache(TEAM, NAME, NAME, tier="Host", copies=2)])
    cluster.kubectl("wait", *where, "--for=jsonpath={.status.copies.inTier}=2", "--timeout=60s")
    pod = product.start_pod(TEAM, build_pod(NAME, labels={"modelcache.io/cache": NAME}))
    yield pod
    cluster.kubectl("delete", "pod", f"--namespace={TEAM}", NAME, "--timeout=60s")
    cluster.kubectl("delete", *where)


def test_a_pod_on_a_warm_node_reads_from_memory_what_the_agent_pays_for(product, hosted):
    node = hosted["spec"]["nodeName"]
    assert label_value(product, node) == "host"
    table = product.cluster.kubectl("get", "modelcache", NAME, f"--namespace={TEAM}").splitlines()
    assert "Host" in table[1].split()
    assert "/256Mi" in product.cluster.kubectl("get", "cachenode", node)
    agent = memory_cgroup(agent_of(product, node), "agent")
    assert stat(agent)["unevictable"] >= SIZE_BYTES
    reader = memory_cgroup(hosted)
    before = stat(reader)["cache"]
    read, _sha256 = read_model(product, hosted)
    assert read < LITTLE_BYTES
    assert stat(reader)["cache"] - before < LITTLE_BYTES


def test_an_agent_that_goes_under_a_reader_leaves_the_model_in_memory(product, hosted):
    node = hosted["spec"]["nodeName"]
    old = agent_of(product, node)["metadata"]["name"]
    _read, expected = read_model(product, hosted)
    product.cluster.kubectl("delete", "pod", f"--namespace={SYSTEM}", old, "--timeout=60s")
    assert read_model(product, hosted)[1] == expected

    def is_back():
        assert label_value(product, node) == "host"
        now = product.pods(SYSTEM, AGENTS)
        mine = [p for p in now if p["spec"].get("nodeName") == node and is_ready(p)]
        return [p["metadata"]["name"] for p in mine] not in ([], [old])

    wait_until(is_back, seconds=60, what=f"another agent on {node}")
    said = product.cluster.kubectl(
        "logs", f"--namespace={SYSTEM}", agent_of(product, node)["metadata"]["name"], "-c", "agent"
    )
    assert re.search(r"host tier: capacity=256Mi locked=\d\dMi", said)
    assert read_model(product, hosted) == (pytest.approx(0, abs=LITTLE_BYTES), expected)


@pytest.mark.usefixtures("hosted")
def test_no_agent_is_ended_for_its_memory_and_each_has_the_tier_on_top_of_its_own(product):
    for agent in product.pods(SYSTEM, AGENTS):
        folder = memory_cgroup(agent, "agent")
        (container,) = (c for c in agent["spec"]["containers"] if c["name"] == "agent")
        (status,) = (s for s in agent["status"]["containerStatuses"] if s["name"] == "agent")
        limit = figure(folder, "memory.limit_in_bytes")
        assert limit == parse_bytes(container["resources"]["limits"]["memory"])
        assert limit >= (256 << 20) * 115 // 100 + (64 << 20)
        assert figure(folder, "memory.usage_in_bytes") <= limit
        assert status["restartCount"] == 0
        assert "oom_kill 0" in (folder / "memory.oom_control").read_text()


def is_ready(pod):
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
