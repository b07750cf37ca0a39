"""One operator process for each module, under the chart's service account."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from fakes.denials import find_denied
from fakes.played_fleet import PlayedFleet
from fakes.stage import OPERATOR_USER, Stage
from modelcache_kube import ConnectConfig, connect
from modelcache_testbed.system import System

_numbers = itertools.count()
QUICK = ("--lease-list-interval=1s", "--agent-lost-after=12s")


@pytest.fixture(scope="module")
def system(cluster, seaweed, tmp_path_factory) -> Iterator[System]:
    """An installed system with one operator that loses patience with agents after 12 s."""
    system = System(cluster, tmp_path_factory.mktemp("system"))
    system.install()
    # The operator's token is bound to its pod, and its pod must outlive the tests' nodes.
    cluster.add_node("home-of-the-operator")
    system.add_operator(extra=QUICK)
    try:
        yield system
    finally:
        system.remove()


@pytest.fixture
async def stage(request, cluster, seaweed, system) -> AsyncIterator[Stage]:
    """A namespace, and nodes with played agents: three, or what the mark `nodes(n)` says."""
    mark = request.node.get_closest_marker("nodes")
    start = cluster.audit.position() if hasattr(cluster, "audit") else 0
    async with (
        connect(ConnectConfig(kubeconfig=cluster.kubeconfig)) as kube,
        PlayedFleet(kube) as fleet,
    ):
        stage = Stage(cluster, seaweed, system, kube, fleet, f"stage-{next(_numbers)}")
        stage.put_model()
        await stage.prepare(mark.args[0] if mark else 3)
        try:
            yield stage
        finally:
            await stage.close()
    if hasattr(cluster, "audit"):
        # C53: whatever a test exercises, nothing of it may be beyond the chart's roles.
        assert find_denied(cluster, start, OPERATOR_USER) == []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "nodes(count): how many played nodes a stage has")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows the end of the operator's log."""
    report = yield
    if report.failed and "system" in getattr(item, "funcargs", {}):
        for program in item.funcargs["system"].operators.values():
            # A failure while the system is taken down may find its files gone.
            if not program.log_file.exists():
                continue
            tail = program.log_file.read_text(errors="replace")[-6000:]
            report.sections.append((f"log of {program.name}", tail))
    return report
