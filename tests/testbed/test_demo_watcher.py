"""What the demo says of the alerts that its Prometheus evaluates."""

from __future__ import annotations

import pytest

from modelcache_testbed.demo import watcher
from modelcache_testbed.demo.watcher import Watcher
from modelcache_testbed.errors import TestbedError


class Server:
    """Stands in for a Prometheus: one alert, with these states in turn, and nothing to draw."""

    started_at = 0.0

    def __init__(self, *states: str) -> None:
        self._states = list(states)

    def list_targets(self):
        return [{"health": "up"}]

    def list_rules(self):
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return [{"name": "Raised", "state": state, "health": "ok"}]

    def ask_range(self, _query, **_span):
        return []


def show(tmp_path, *states: str) -> None:
    one = Watcher(None, tmp_path / "dashboard.png")
    one._server = Server(*states)
    one.show()


@pytest.mark.parametrize("state", ["pending", "firing", "unknown"])
def test_an_alert_that_holds_at_the_end_ends_the_demo_though_it_may_not_fire_yet(
    tmp_path, monkeypatch, state
):
    monkeypatch.setattr(watcher, "_QUIET_SECONDS", 0.1)
    with pytest.raises(TestbedError, match="Raised"):
        show(tmp_path, state)


def test_what_is_over_is_given_a_moment_to_be_seen(tmp_path):
    show(tmp_path, "inactive", "pending", "pending", "inactive")
    assert (tmp_path / "dashboard.png").exists()
