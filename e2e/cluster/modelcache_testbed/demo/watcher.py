"""A Prometheus beside the demo, with the chart's alerts, and a picture of what it has read."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from modelcache_testbed.console import say
from modelcache_testbed.dashboard_picture import Span, draw_dashboard
from modelcache_testbed.demo.scene import TEAM
from modelcache_testbed.demo.steps import check, start_step
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.models import build_namespace
from modelcache_testbed.prometheus import ALERTS, Prometheus, Target
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from modelcache_testbed.demo.scene import Scene

_QUOTA = {
    "apiVersion": "modelcache.io/v1alpha1",
    "kind": "ModelCacheQuota",
    "metadata": {"name": TEAM, "namespace": TEAM},
    "spec": {"hard": {"disk": "1Gi", "host": "512Mi"}},
}
_QUIET_SECONDS = 10.0


class Watcher:
    """It reads from before the first model is wanted until the picture is drawn."""

    def __init__(self, scene: Scene, picture: Path) -> None:
        """Refer to the scene; nothing is started yet."""
        self._scene = scene
        self._picture = picture

    def begin(self) -> None:
        """Start to read."""
        start_step("A Prometheus (real) reads operator and agents, with the alerts of the chart.")
        system = self._scene.system
        self._server = Prometheus(system.folder / "prometheus")
        targets = [Target("operator", system.operator_http_port)]
        targets += [Target("agent", port, node) for node, port in self._scene.metrics_ports.items()]
        self._server.start(targets, [ALERTS])
        # A quota with room for all of it, so that there is something to see.
        self._scene.cluster.apply([build_namespace(TEAM), _QUOTA])
        say(f"   it answers at {self._server.url} until the demo is taken down")

    def show(self) -> None:
        """Draw what was read."""
        start_step(
            "What Prometheus has read: no alert is raised, and the dashboard as one picture."
        )
        targets = self._server.list_targets()
        check(
            all(target["health"] == "up" for target in targets),
            f"{len(targets)} targets are read",
        )
        rules = self._server.list_rules()
        check(
            bool(rules) and all(rule["health"] == "ok" for rule in rules),
            f"{len(rules)} alerts are evaluated without an error",
        )
        raised = self._await_quiet()
        check(not raised, f"alerts whose expression holds: {', '.join(raised) or 'none'}")
        span = Span(self._server.started_at, time.time())
        empty = draw_dashboard(self._server, span, self._picture)
        say(f"   the dashboard from the first reading on: {self._picture}")
        say(f"   queries for what did not happen: {', '.join(empty) or 'none'}")

    def _await_quiet(self) -> list[str]:
        """Alerts that still hold a few evaluations later: they see the end a moment late."""
        with suppress(TestbedError):
            wait_until(
                lambda: not find_raised(self._server.list_rules()),
                seconds=_QUIET_SECONDS,
                what="every alert to be inactive",
            )
        return find_raised(self._server.list_rules())


def find_raised(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    """Alerts whose expression holds. Most fire minutes later, which is longer than a demo waits."""
    return [rule["name"] for rule in rules if rule["state"] != "inactive"]
