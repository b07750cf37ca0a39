"""A Prometheus beside the demo, with the chart's alerts, and a picture of what it has read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.console import say
from modelcache_testbed.dashboard_picture import Span, draw_dashboard
from modelcache_testbed.demo.scene import TEAM
from modelcache_testbed.demo.steps import check, start_step
from modelcache_testbed.models import build_namespace
from modelcache_testbed.prometheus import ALERTS, Prometheus, Target

if TYPE_CHECKING:
    from modelcache_testbed.demo.scene import Scene

_QUOTA = {
    "apiVersion": "modelcache.io/v1alpha1",
    "kind": "ModelCacheQuota",
    "metadata": {"name": TEAM, "namespace": TEAM},
    "spec": {"hard": {"disk": "1Gi", "host": "512Mi"}},
}


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
        start_step("What Prometheus has read: no alert fires, and the dashboard as one picture.")
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
        firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
        check(not firing, f"alerts that fire: {', '.join(firing) or 'none'}")
        span = Span(self._server.started_at, time.time())
        empty = draw_dashboard(self._server, span, self._picture)
        say(f"   the dashboard from the first reading on: {self._picture}")
        say(f"   panels of what did not happen: {', '.join(empty) or 'none'}")
