"""What a checklist looks at, and what it says, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from modelcache_cli.fleet import Fleet


class Outcome(StrEnum):
    """How a probe ended. Unknown: it could not look, which is no pass."""

    PASS = "Pass"  # noqa: S105 - an outcome
    FAIL = "Fail"
    UNKNOWN = "Unknown"


class Switch(StrEnum):
    """What values of the chart switch off, by their names."""

    CSI = "csi.enabled"
    INJECTION = "injection.mode"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one probe says; `todo` is empty where there is nothing to do."""

    check: str
    outcome: Outcome
    told: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Right:
    """One thing that an account must be allowed, and whether it is."""

    account: str
    verb: str
    resource: str
    is_allowed: bool


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or DaemonSet of the system, with what keeps one of its pods from running."""

    kind: str
    name: str
    desired: int
    ready: int
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a node's clock is ahead of the API server's."""

    node: str
    ahead: timedelta


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and when it ends; None: what stands in its place is none."""

    name: str
    not_after: datetime | None


@dataclass(frozen=True, slots=True)
class Scraped:
    """Agents that a Prometheus server has metrics of; `trouble` if it cannot be asked."""

    agents: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """How the test model went. `reason` and `told` are the ModelCache's own."""

    is_cached: bool
    seconds: float
    told: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that was looked at. None: it could not be, or nobody asked for it.

    `drivers` are the nodes on which the kubelet knows the CSI driver; `injection` is empty where
    nothing injects; `switched_off` is empty where it may not be read. `fleet_trouble` is why there
    is no fleet, where that is no missing right.
    """

    now: datetime
    fleet: Fleet | None = None
    fleet_trouble: str = ""
    rights: Sequence[Right] | None = None
    workloads: Sequence[Workload] | None = None
    guards: frozenset[str] | None = None
    injection: str | None = None
    csi_driver: bool | None = None
    drivers: frozenset[str] | None = None
    clocks: Sequence[Clock] | None = None
    certificates: Sequence[Certificate] | None = None
    switched_off: frozenset[str] = frozenset()
    scraped: Scraped | None = None
    trial: Trial | None = None
