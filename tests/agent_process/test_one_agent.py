"""The agent's process: from an entry to a label, through a restart, and away again."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from fakes.fetch_world import random_body, safetensors_body
from modelcache_agent.tiers.durable import walk_files
from modelcache_testbed.waiting import wait_until

pytestmark = pytest.mark.cluster

BODIES = {
    "model.safetensors": safetensors_body(20 << 20, seed=1),
    "config.json": b"{}",
    "1_Pooling/config.json": random_body(1000, seed=2),
}


def find_large_files(root):
    found = []
    for path in walk_files(root):
        with suppress(FileNotFoundError):
            found += [path] if path.stat().st_size > 10_000 else []
    return found


def test_a_version_is_fetched_proposed_labelled_and_removed(agent):
    version = agent.add("v1", BODIES)
    agent.start()
    entry = agent.await_state("v1", "Cached")
    assert entry["contentDigest"] == version.content_digest == version.adopted
    assert agent.labels() == set(), "a label needs the operator's word on the content"

    key = agent.adopt("v1")
    agent.await_labels({key})
    tree = agent.store / "versions" / version.content_digest.removeprefix("sha256:")
    assert {path: (tree / path).read_bytes() for path in BODIES} == BODIES

    agent.drop("v1")
    agent.await_labels(set())
    wait_until(lambda: not tree.exists(), seconds=10, what="the bytes to go")
    wait_until(lambda: agent.status().get("models") == 0, seconds=10, what="an empty status")
    wait_until(lambda: not find_large_files(agent.store), seconds=10, what="all bytes to go")


def test_a_killed_agent_locks_the_same_pages_again_and_reads_no_disk(agent):
    if os.geteuid() != 0:
        pytest.skip("the host tier needs root")
    agent.add("v1", BODIES)
    agent.entries[0]["tier"] = "Host"
    key = agent.adopt("v1")
    agent.start("--host-capacity=64Mi")
    wait_until(lambda: agent.label_values() == {key: "host"}, seconds=30, what="the label")
    wait_until(lambda: agent.entry("v1").get("tier") == "Host", seconds=30, what="the status")
    assert process_status(agent, "VmLck:") >= (20 << 20) // 1024
    agent.stop(signal.SIGKILL)
    agent.start("--host-capacity=64Mi")
    wait_until(
        lambda: process_status(agent, "VmLck:") >= (20 << 20) // 1024, seconds=30, what="locks"
    )
    io = Path(f"/proc/{agent.process.pid}/io").read_text()
    # The program itself and the store's records, but none of the 20 MiB.
    assert int(io.split("read_bytes: ")[1].split()[0]) < 10 << 20
    assert agent.label_values() == {key: "host"}
    assert agent.entry("v1")["tier"] == "Host"


def process_status(agent, field):
    """KiB."""
    text = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(text.partition(field)[2].split()[0])


def test_C14_a_restart_asks_neither_operator_nor_store(agent):
    agent.add("v1", BODIES)
    agent.start()
    agent.await_state("v1", "Cached")
    key = agent.adopt("v1")
    agent.await_labels({key})
    code, seconds = agent.stop()
    assert code == 0
    assert seconds < 10
    asked, fetched = len(agent.grants.requests), len(agent.objects.requests)
    agent.grants.failing_status = 503
    agent.objects.objects.clear()
    before = agent.cluster.api.get(agent.cache_node_path)["metadata"]["resourceVersion"]
    agent.start()
    wait_until(
        lambda: (
            "labels=1 on the Node" in (agent.folder / "agent.log").read_text().split("stopping")[-1]
        ),
        seconds=20,
        what="the restarted agent to look at its labels",
    )
    assert agent.labels() == {key}
    assert agent.entry("v1")["state"] == "Cached"
    assert (len(agent.grants.requests), len(agent.objects.requests)) == (asked, fetched)
    after = agent.cluster.api.get(agent.cache_node_path)["metadata"]["resourceVersion"]
    assert before == after, "an unchanged status is not written again"
