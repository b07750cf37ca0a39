"""A real Prometheus that reads what our programs say, with the chart's rules."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.folders import state_folder
from modelcache_testbed.gobuild import ensure_built
from modelcache_testbed.ports import LOOPBACK, PortLedger
from modelcache_testbed.probes import answers_http
from modelcache_testbed.programs import PROMETHEUS
from modelcache_testbed.system import Program
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = Path(__file__).resolve().parents[3]
ALERTS = _ROOT / "charts" / "modelcache" / "files" / "monitoring" / "alerts.yaml"
_READY_SECONDS = 30.0


@dataclass(frozen=True)
class Target:
    """One program's port of metrics. An agent has the ``node`` that the PodMonitor would tell."""

    job: str
    port: int
    node: str = ""

    def describe(self) -> dict[str, Any]:
        """As a job of the configuration; as in the chart's monitors, series keep their labels."""
        labels = {"node": self.node} if self.node else {}
        return {
            "job_name": f"{self.job}-{self.port}",
            "honor_labels": not self.node,
            "static_configs": [{"targets": [f"{LOOPBACK}:{self.port}"], "labels": labels}],
        }


class Prometheus:
    """One server with a folder of its own, which is the caller's to delete."""

    def __init__(self, folder: Path, *, interval: str = "1s") -> None:
        """Refer to the server; nothing is started yet."""
        self.folder = folder.absolute()
        self._interval = interval
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ledger = PortLedger(state_folder() / "ports.json")
        self.port = self._ledger.reserve(("prometheus",), self.folder)["prometheus"]
        self._program = self._describe()
        self.started_at = 0.0

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self, targets: Sequence[Target], rules: Sequence[Path] = ()) -> None:
        """Read these targets and rules from now on; each has been read once when this returns.

        Raises:
            TestbedError: Prometheus has ended, or a target does not answer.
        """
        ensure_built([PROMETHEUS])
        every = {"scrape_interval": self._interval, "evaluation_interval": self._interval}
        document = {
            "global": every,
            "rule_files": [str(path.absolute()) for path in rules],
            "scrape_configs": [target.describe() for target in targets],
        }
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(document, sort_keys=False))
        self._program.start()
        wait_until(self._is_ready, seconds=_READY_SECONDS, what="Prometheus to be ready")
        # It finds its targets seconds after it is ready.
        wait_until(
            lambda: [target["health"] for target in self.list_targets()] == ["up"] * len(targets),
            seconds=_READY_SECONDS,
            what="Prometheus to read every target",
        )
        self.started_at = time.time()

    def stop(self) -> None:
        """End it and give its port back; it not running is fine."""
        self._program.stop()
        self._ledger.release(self.folder)

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The samples of an instant query: `metric` and `value`.

        Raises:
            TestbedError: Prometheus refuses the query, and why.
        """
        found = self._get("query", query=query)
        return list(found["result"]) if found["resultType"] == "vector" else [found["result"]]

    def ask_range(
        self, query: str, *, start: float, end: float, step: float
    ) -> list[dict[str, Any]]:
        """The series of a query over a span (Unix seconds): `metric` and `values`.

        Raises:
            TestbedError: Prometheus refuses the query, and why.
        """
        span = {"start": str(start), "end": str(end), "step": str(step)}
        return list(self._get("query_range", query=query, **span)["result"])

    def ask_number(self, query: str) -> float | None:
        """The one number that a query comes to; None without data."""
        samples = self.ask(query)
        if len(samples) > 1:
            raise TestbedError(f"{query} has {len(samples)} series")
        return float(samples[0]["value"][1]) if samples else None

    def list_rules(self) -> list[dict[str, Any]]:
        """All rules with their `health`, `lastError` and `state`."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def list_targets(self) -> list[dict[str, Any]]:
        """All targets with their `health` and `lastError`."""
        return list(self._get("targets")["activeTargets"])

    def _describe(self) -> Program:
        argv = (
            str(PROMETHEUS.path),
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={LOOPBACK}:{self.port}",
        )
        return Program("prometheus", argv, self.folder, {"HOME": "/nonexistent"})

    def _is_ready(self) -> bool:
        self._program.assert_alive()
        return answers_http(f"{self.url}/-/ready")

    def _get(self, what: str, **parameters: str) -> dict[str, Any]:
        query = urllib.parse.urlencode(parameters)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/api/v1/{what}?{query}", timeout=10) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise TestbedError(
                f"Prometheus refuses {parameters}: {error.read().decode()}"
            ) from error
        return dict(found["data"])
