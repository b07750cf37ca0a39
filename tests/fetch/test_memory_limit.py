"""The page cache counts: what a fetch is charged for, in a real memory cgroup."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fakes.page_room import drop, resident
from fakes.range_server import RangeServer, Served
from modelcache_agent.tiers.host.pages import FileMap
from modelcache_testbed.memory_cgroup import memory_cgroup

MIB = 1 << 20
SIZE = 192 * MIB
RUNNER = Path(__file__).with_name("memory_runner.py")


@pytest.fixture(scope="module")
def served():
    body = os.urandom(MIB) * (SIZE // MIB)
    with RangeServer() as server:
        server.objects["object.bin"] = Served.of(body, "one")
        yield server


@pytest.fixture
def cgroup():
    try:
        with memory_cgroup(2048 * MIB) as made:
            yield made
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")


def fetch(cgroup, served, folder, how):
    done = cgroup.run(RUNNER, served.url("object.bin"), '"one"', SIZE, folder, how)
    assert done.returncode == 0, done.stderr
    assert "MiB/s" in done.stdout
    return cgroup.peak_bytes


@pytest.mark.parametrize("how", ["direct", "no-direct"])
def test_C55_a_fetch_to_disk_is_charged_for_its_buffers_whatever_the_file_system(
    cgroup, served, tmp_path, how
):
    """Program and buffers take about 100 MiB; without flush and drop the file came on top."""
    assert fetch(cgroup, served, tmp_path, how) < SIZE


def test_C55_a_fetch_into_memory_is_charged_for_the_bytes_that_were_booked(
    cgroup, served, tmp_path
):
    peak = fetch(cgroup, served, tmp_path, "through-memory")
    assert SIZE <= peak < SIZE + 160 * MIB
    [partial] = tmp_path.glob("*.part")
    assert resident(partial) == SIZE


def test_C56_the_limit_of_a_real_cgroup_is_held_against_the_capacity_before_any_copy(
    cgroup, tmp_path
):
    program = (
        "import sys; from pathlib import Path;"
        "from modelcache_agent.tiers.host.facts import find_facts;"
        "from modelcache_agent.decide.host_fitness import describe_unfit;"
        "facts = find_facts(Path(sys.argv[1]));"
        "print(facts.cgroup_version, describe_unfit(facts, 2 << 30), '/',"
        "describe_unfit(facts, 1 << 30))"
    )
    done = cgroup.run("-c", program, tmp_path)
    assert done.returncode == 0, done.stderr
    version, _, words = done.stdout.partition(" ")
    assert int(version) == cgroup.version
    refused, _, taken = words.partition(" / ")
    assert "2Gi (2147483648 bytes)" in refused
    assert f"needs 2.3Gi ({(2 << 30) * 115 // 100} bytes)" in refused
    assert "memory limit" in refused
    assert taken.strip() == "None"


def test_C56_readers_of_a_locked_model_pay_for_none_of_its_pages(tmp_path):
    """The reader's limit is a fraction of the model; whoever touched the pages first would pay."""
    path = tmp_path / "blob"
    path.write_bytes(os.urandom(MIB) * 96)
    drop(path)
    pages = FileMap(path)
    pages.lock(0, pages.size_bytes)
    program = (
        "import mmap, sys; file = open(sys.argv[1], 'rb');"
        "pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ); sum(pages[::4096])"
    )
    try:
        with memory_cgroup(64 * MIB) as cgroup:
            done = cgroup.run("-c", program, path)
            assert done.returncode == 0, done.stderr
            assert cgroup.peak_bytes < 48 * MIB
    except PermissionError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    finally:
        pages.close()


def test_locked_pages_count_as_what_the_limit_cannot_take_back(cgroup, tmp_path):
    path = tmp_path / "blob"
    path.write_bytes(bytes(64 * MIB))
    drop(path)
    program = (
        "import sys; from pathlib import Path;"
        "from modelcache_agent.tiers.host.pages import FileMap;"
        "from modelcache_agent.tiers.host.signs import read_signs;"
        "left = lambda: read_signs().signs[-1].available_bytes;"
        "before, pages = left(), FileMap(Path(sys.argv[1]));"
        "pages.lock(0, pages.size_bytes); print(before - left())"
    )
    done = cgroup.run("-c", program, path)
    assert done.returncode == 0, done.stderr
    assert 60 * MIB < int(done.stdout) < 96 * MIB
