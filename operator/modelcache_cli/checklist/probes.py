"""What each probe says of what was observed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from modelcache_api.durations import parse_duration
from modelcache_api.names import CSI_DRIVER, EntryOrigin, Reason, Tier
from modelcache_api.quantities import format_bytes
from modelcache_cli.checklist.values import Observed, Outcome, Switch, Verdict
from modelcache_cli.fleet import SeenNode, SeenVersion
from modelcache_cli.why import DELETING

HEADROOM: Final = 0.2
# Short-lived credentials, signatures and Leases bear seconds; stores refuse from 15 minutes on.
_CLOCK_TOLERANCE: Final = timedelta(seconds=30)
# A rotation of the operator's authority keeps the old one for days; less left means that none came.
_CERTIFICATE_LEFT: Final = timedelta(days=7)
# A look that finds nothing new is written at most once an hour.
_LOOK_WRITTEN: Final = timedelta(hours=1)
_SHOWN: Final = 3


def judge(seen: Observed) -> tuple[Verdict, ...]:
    """One verdict for each probe, in the order in which faults are best mended."""
    return tuple(Verdict(name, *probe(seen)) for name, probe in PROBES.items())


_Told = tuple[Outcome, str] | tuple[Outcome, str, str]
_NO_NODES: Final[_Told] = (
    Outcome.FAIL,
    "no agent has reported from a node",
    "check the agents' DaemonSets",
)


def _unknown(what: str) -> _Told:
    return Outcome.UNKNOWN, f"{what} may not be read", "ask somebody who runs the cluster"


def _without_fleet(seen: Observed, what: str) -> _Told:
    if not seen.fleet_trouble:
        return _unknown(what)
    return Outcome.UNKNOWN, seen.fleet_trouble, "compare releases: `kubectl modelcache --version`"


def _probe_rights(seen: Observed) -> _Told:
    if seen.rights is None:
        return _unknown("what the accounts may do")
    lacking = [r for r in seen.rights if not r.is_allowed]
    if not lacking:
        return Outcome.PASS, f"the accounts have the {len(seen.rights)} rights they need most"
    told = _shorten(f"{r.account} may not {r.verb} {r.resource}" for r in lacking)
    return Outcome.FAIL, told, "install or upgrade the chart as somebody who may grant these rights"


def _probe_workloads(seen: Observed) -> _Told:
    if seen.workloads is None:
        return _unknown("Deployments and DaemonSets of the system's namespace")
    if not seen.workloads:
        return (
            Outcome.FAIL,
            "there is no Deployment or DaemonSet of ModelCache in the system's namespace",
            "install the chart, or name its namespace with --system-namespace",
        )
    idle = [w.name for w in seen.workloads if not w.desired and w.kind == "DaemonSet"]
    short = [
        w for w in seen.workloads if w.name not in idle and (w.ready < w.desired or not w.desired)
    ]
    if not short and idle:
        return (
            Outcome.UNKNOWN,
            f"no node is selected by DaemonSet {_shorten(idle)}",
            "leave it if its nodes are scaled to zero, else see the nodeSelector of its profile",
        )
    if not short:
        total = sum(w.ready for w in seen.workloads)
        return Outcome.PASS, f"all {total} pods of operator and agents are ready"
    told = _shorten(
        f"{w.kind} {w.name}: {w.ready} of {w.desired} ready{f': {w.trouble}' if w.trouble else ''}"
        for w in short
    )
    return (
        Outcome.FAIL,
        told,
        (
            "see `kubectl describe` of these in the system's namespace; a DaemonSet that gets no "
            "pods is in a namespace that enforces more than Pod Security privileged"
        ),
    )


def _probe_admission(seen: Observed) -> _Told:
    if seen.guards is None:
        return _unknown("admission policies")
    missing = GUARDS - seen.guards
    if missing:
        return (
            Outcome.FAIL,
            f"without guard: {_shorten(sorted(missing))}",
            "set guards.enabled, or accept that whoever may write Nodes can lie to the scheduler",
        )
    if not seen.injection and Switch.INJECTION in seen.switched_off:
        return (
            Outcome.PASS,
            f"all {len(GUARDS)} guards are bound; {Switch.INJECTION} is none: nothing is injected",
        )
    if seen.injection is None:
        return _unknown("mutating policies and webhooks")
    if not seen.injection:
        return (
            Outcome.FAIL,
            f"all {len(GUARDS)} guards are bound, but nothing injects volumes into pods",
            "set injection.mode, or run manifests through `kubectl modelcache inject`",
        )
    return (
        Outcome.PASS,
        f"all {len(GUARDS)} guards are bound; pods are injected by {seen.injection}",
    )


def _probe_csi(seen: Observed) -> _Told:
    if Switch.CSI in seen.switched_off:
        return Outcome.PASS, f"{Switch.CSI} is false: no pod gets a volume"
    nodes = _nodes(seen)
    if seen.csi_driver is None or seen.drivers is None or nodes is None:
        return _without_fleet(seen, "CSIDriver, CSINodes and CacheNodes")
    if not nodes:
        return _NO_NODES
    if not seen.csi_driver:
        return (
            Outcome.FAIL,
            f"there is no CSIDriver {CSI_DRIVER}",
            "set csi.enabled: without it no pod gets a volume",
        )
    missing = sorted(node.name for node in nodes if node.name not in seen.drivers)
    if missing:
        return (
            Outcome.FAIL,
            f"the kubelet does not know the driver on {_shorten(missing)}",
            "see the logs of the agent's container csi there, and csi.kubeletDir",
        )
    return Outcome.PASS, f"{CSI_DRIVER} is registered on all {len(nodes)} nodes"


def _probe_mounts(seen: Observed) -> _Told:
    """Of stores: an agent that lacks its mount point does not start; a broken one says so."""
    nodes = _nodes(seen)
    if nodes is None:
        return _without_fleet(seen, "CacheNodes")
    if not nodes:
        return _NO_NODES
    lost = [node.name for node in nodes if not node.is_alive]
    without = [node.name for node in nodes if node.is_alive and _capacity(node, Tier.DISK) == 0]
    broken = [
        node.name
        for node in nodes
        if any(entry.reason == Reason.STORE_ERROR for entry in node.status.entries)
    ]
    if lost or without or broken:
        told = [
            f"{what} on {_shorten(names)}"
            for what, names in (
                ("no living agent", lost),
                ("no bytes for the cache", without),
                ("the store's disk fails", broken),
            )
            if names
        ]
        return (
            Outcome.FAIL,
            "; ".join(told),
            (
                "`kubectl logs` of the agent there names the mount point or disk; "
                "`kubectl modelcache why node/NAME` the rest"
            ),
        )
    return Outcome.PASS, f"all {len(nodes)} agents live and have their store"


def _probe_capacity(seen: Observed) -> _Told:
    """Of living agents: a lost one has no room for anybody."""
    nodes = _nodes(seen)
    if nodes is None:
        return _without_fleet(seen, "CacheNodes")
    nodes = tuple(node for node in nodes if node.is_alive)
    if not nodes:
        return Outcome.FAIL, "there is no living agent", "check the agents' DaemonSets"
    crowded = []
    for node in nodes:
        booked, capacity = _booked(node), _capacity(node, Tier.DISK)
        if capacity and booked * (1 + HEADROOM) > capacity:
            crowded.append(
                f"{node.name}: {format_bytes(booked)} of {format_bytes(capacity)} are placed"
            )
        pressed = (book.pressure for book in node.status.tiers if book.pressure)
        crowded += [f"{node.name}: {pressure}" for pressure in pressed]
    if crowded:
        return (
            Outcome.FAIL,
            f"less than {HEADROOM:.0%} more would fit: {_shorten(crowded)}",
            (
                "raise the capacity, lower copies, or add nodes; `kubectl modelcache plan` has the "
                "arithmetic"
            ),
        )
    total = sum(_capacity(node, Tier.DISK) for node in nodes)
    booked = sum(_booked(node) for node in nodes)
    return (
        Outcome.PASS,
        (
            f"{format_bytes(booked)} of {format_bytes(total)} are placed, with {HEADROOM:.0%} more "
            f"to spare on each of {len(nodes)} nodes"
        ),
    )


def _probe_sources(seen: Observed) -> _Told:
    if seen.fleet is None:
        return _without_fleet(seen, "ModelVersions")
    versions = [one for one in seen.fleet.versions if one.finding.reason != DELETING]
    if not versions:
        return (
            Outcome.UNKNOWN,
            "there is no ModelVersion whose source could be looked at",
            "create one, or give --test-uri",
        )
    bad = [one for one in versions if one.finding.reason != Reason.RESOLVED]
    if bad:
        first = bad[0]
        told = f"{first.finding.reason} of {first.key}: {first.finding.message}"
        more = f" ({len(bad) - 1} more)" if len(bad) > 1 else ""
        todo = first.finding.find_cure() or (
            f"`kubectl modelcache why modelversion/{first.key.name} -n {first.key.namespace}`"
        )
        return Outcome.FAIL, f"{told}{more}", todo
    told = _tell_looks(versions)
    if all(one.status.last_check_time is None for one in versions):
        return Outcome.UNKNOWN, told, "give one of them as --test-uri"
    if late := [str(one.key) for one in versions if _is_late(one, seen.now)]:
        return (
            Outcome.UNKNOWN,
            f"{told}; longer ago than twice the recheckInterval: {_shorten(late)}",
            "check that the operator runs and may reach them, or give --test-uri",
        )
    return Outcome.PASS, told


def _is_late(version: SeenVersion, now: datetime) -> bool:
    looked_at = version.status.last_check_time
    interval = timedelta(seconds=parse_duration(version.spec.source.recheck_interval))
    return looked_at is not None and now - looked_at > 2 * interval + _LOOK_WRITTEN


def _tell_looks(versions: Sequence[SeenVersion]) -> str:
    """How old that is: sources are looked at anew by recheckInterval, and pinned ones never."""
    looks = [at for one in versions if (at := one.status.last_check_time) is not None]
    since = f", the first of these looks at {min(looks):%Y-%m-%d %H:%M} UTC" if looks else ""
    rest = len(versions) - len(looks)
    never = (
        f"; {rest} not since they were resolved, or pinned: --test-uri looks now" if rest else ""
    )
    return f"{len(looks)} of {len(versions)} sources answered and were the same{since}{never}"


def _probe_tls(seen: Observed) -> _Told:
    if seen.certificates is None:
        return _unknown("the operator's authority and the webhook's CA")
    if not seen.certificates:
        return (
            Outcome.FAIL,
            "the operator has published no authority",
            "check that it runs and may write ConfigMaps of its namespace",
        )
    broken = [one.name for one in seen.certificates if one.not_after is None]
    if broken:
        told = f"what is published as {_shorten(broken)} is no certificate"
        return Outcome.FAIL, told, "rotate the authority, or upgrade the chart for the webhook's"
    ends = [(one.not_after, one.name) for one in seen.certificates if one.not_after is not None]
    ending = [(at, name) for at, name in ends if at - seen.now < _CERTIFICATE_LEFT]
    if ending:
        told = _shorten(f"{name} ends at {at:%Y-%m-%d %H:%M} UTC" for at, name in ending)
        return Outcome.FAIL, told, "rotate the authority, or upgrade the chart for the webhook's"
    at, name = min(ends)
    return Outcome.PASS, f"the first to end, {name}, does at {at:%Y-%m-%d}"


def _probe_clocks(seen: Observed) -> _Told:
    if seen.clocks is None:
        return _unknown("the agents' Leases")
    if not seen.clocks:
        return Outcome.UNKNOWN, "no agent has renewed a Lease", "check the agents' DaemonSets"
    wrong = [one for one in seen.clocks if abs(one.ahead) > _CLOCK_TOLERANCE]
    if wrong:
        told = _shorten(f"{one.node} is {_tell_offset(one.ahead)}" for one in wrong)
        return (
            Outcome.FAIL,
            f"against the API server's clock: {told}",
            "run a time service there: stores refuse signatures that are minutes off",
        )
    return Outcome.PASS, f"{len(seen.clocks)} nodes' clocks agree with the API server's"


def _probe_metrics(seen: Observed) -> _Told:
    if seen.scraped is None:
        return (
            Outcome.UNKNOWN,
            "no Prometheus server was asked",
            "give --prometheus with its address as seen from here",
        )
    if seen.scraped.trouble:
        return (
            Outcome.FAIL,
            seen.scraped.trouble,
            "check the address, and that it answers from here",
        )
    alive = sum(node.is_alive for node in _nodes(seen) or ())
    if seen.scraped.agents < max(1, alive):
        return (
            Outcome.FAIL,
            f"it has metrics of {seen.scraped.agents} of {alive} agents",
            "let it scrape port metrics of the pods, and networkPolicy.metricsFrom let it in",
        )
    return Outcome.PASS, f"it has metrics of {seen.scraped.agents} agents"


def _probe_model(seen: Observed) -> _Told:
    if seen.trial is None:
        return (
            Outcome.UNKNOWN,
            "no model was tried",
            "give --test-uri with the source of a small one",
        )
    if not seen.trial.is_cached:
        return Outcome.FAIL, seen.trial.told, seen.trial.cure
    return Outcome.PASS, f"a verified copy was there after {seen.trial.seconds:.0f} s"


GUARDS: Final = frozenset(
    {
        "modelcache-agent-cachenode",
        "modelcache-agent-lease",
        "modelcache-agent-node",
        "modelcache-cachenodes",
        "modelcache-node-labels",
        "modelcache-operator-node",
        "modelcache-operator-pod",
        "modelcache-status",
    }
)
PROBES: Final[dict[str, Callable[[Observed], _Told]]] = {
    "RBAC": _probe_rights,
    "workloads": _probe_workloads,
    "admission": _probe_admission,
    "CSI": _probe_csi,
    "mount points": _probe_mounts,
    "capacity": _probe_capacity,
    "sources": _probe_sources,
    "TLS": _probe_tls,
    "clocks": _probe_clocks,
    "metrics": _probe_metrics,
    "test model": _probe_model,
}


def _nodes(seen: Observed) -> tuple[SeenNode, ...] | None:
    return None if seen.fleet is None else seen.fleet.nodes


def _capacity(node: SeenNode, tier: Tier) -> int:
    return sum(book.capacity_bytes for book in node.status.tiers if book.name is tier)


def _booked(node: SeenNode) -> int:
    """Bytes of what is placed there; what pods brought or is held gives way."""
    placed = (entry for entry in node.spec.entries if entry.origin is EntryOrigin.PLACEMENT)
    return sum(entry.size_bytes for entry in placed)


def _tell_offset(ahead: timedelta) -> str:
    seconds = ahead.total_seconds()
    return f"{abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}"


def _shorten(texts: Iterable[str]) -> str:
    found = list(texts)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{', '.join(found[:_SHOWN])}{more}"
