"""The limit of our memory cgroup, as version 1 and 2 write it."""

from __future__ import annotations

import pytest

from modelcache_agent.tiers.host.cgroups import CgroupMemory, find_limit

MIB = 1 << 20
V1 = "9:name=systemd:/x\n4:cpu,memory:/pods/one\n0::/\n"
V2 = "0::/pods/one\n"


@pytest.fixture
def machine(tmp_path):
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    proc.mkdir()

    def make(memberships, files):
        (proc / "cgroup").write_text(memberships)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return find_limit(proc, root)

    return make


def test_version_2_the_tightest_limit_above_us_counts(machine):
    files = {
        "pods/one/memory.max": "max\n",
        "pods/one/memory.stat": "anon 1\nunevictable 2\n",
        "pods/memory.max": f"{64 * MIB}\n",
        "pods/memory.stat": f"anon {3 * MIB}\nfile 9999\nunevictable {4 * MIB}\n",
    }
    assert machine(V2, files) == CgroupMemory(2, 64 * MIB, 7 * MIB)


def test_version_1_says_no_limit_by_a_huge_number(machine):
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/pods/one/memory.limit_in_bytes": f"{32 * MIB}\n",
        "memory/pods/one/memory.stat": f"total_rss {MIB}\ntotal_unevictable {2 * MIB}\n",
    }
    assert machine(V1, files) == CgroupMemory(1, 32 * MIB, 3 * MIB)
    files["memory/pods/one/memory.limit_in_bytes"] = "9223372036854771712\n"
    assert machine(V1, files) == CgroupMemory(1)


@pytest.mark.parametrize(("memberships", "folder"), [(V1, "memory/"), (V2, "")])
def test_in_a_container_the_mounts_top_is_ours(machine, memberships, folder):
    name = "memory.limit_in_bytes" if folder else "memory.max"
    found = machine(memberships, {f"{folder}{name}": f"{MIB}\n"})
    assert found.limit_bytes == MIB


def test_without_a_memory_cgroup_nothing_limits_us(machine):
    assert machine("9:name=systemd:/x\n", {}) == CgroupMemory()
