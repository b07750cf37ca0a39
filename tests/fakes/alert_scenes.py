"""For each alert: series on which it fires alone, and series on which nothing fires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MINUTES = 60
_NODE = 'node="n1", instance="10.0.0.1:9404"'
_CACHE = 'namespace="search", name="minilm"'
_LEADER = "modelcache_operator_is_leader"
_EXPIRY = "modelcache_operator_certificate_expiry_timestamp_seconds"


def steady(value: float) -> str:
    """The same for an hour, in promtool's notation."""
    return f"{value:g}x{MINUTES}"


def growing(step: float) -> str:
    """By so much in each minute of the hour."""
    return f"0+{step:g}x{MINUTES}"


def coming_and_going(value: float, there: int = 5, away: int = 3) -> str:
    """For so many minutes there, then for so many without a series, all through the hour."""
    cycle = f"{value:g}x{there - 1} stale _x{away - 1}"
    return " ".join([cycle] * (MINUTES // (there + away) + 1))


def once(value: float, at: int = 20, minutes: int = 3) -> str:
    """For so many minutes there, and nothing before and after."""
    return f"0x{at - 1} {value:g}x{minutes - 1} 0x{MINUTES - at - minutes}"


@dataclass(frozen=True, slots=True)
class Scene:
    """Series with their values of one hour."""

    fires: Mapping[str, str]
    quiet: Mapping[str, str]


def _attaches(hits: float, misses: float) -> dict[str, str]:
    name = "modelcache_agent_attaches_total"
    return {
        f'{name}{{tier="disk", result="hit", {_NODE}}}': growing(hits),
        f'{name}{{tier="disk", result="miss", {_NODE}}}': growing(misses),
        # Nobody has this tier, and so nobody misses it.
        f'{name}{{tier="host", result="miss", {_NODE}}}': growing(9),
    }


def _reason(word: str, entries: float) -> dict[str, str]:
    return _seen(word, steady(entries))


def _seen(word: str, values: str) -> dict[str, str]:
    return {f'modelcache_agent_entry_reasons{{reason="{word}", {_NODE}}}': values}


def _transfer(received: str, proved: str) -> dict[str, str]:
    return {
        f'modelcache_agent_entries{{state="Downloading", {_NODE}}}': steady(1),
        f"modelcache_agent_fetch_network_bytes_total{{{_NODE}}}": received,
        f"modelcache_agent_fetch_proved_bytes_total{{{_NODE}}}": proved,
    }


def _retries(values: str) -> dict[str, str]:
    name = "modelcache_agent_fetch_retries_total"
    return {f'{name}{{reason="Throttled", {_NODE}}}': values}


def _rollout(reason: str) -> dict[str, str]:
    # Two replicas tell the same.
    return {
        f'modelcache_cache_rollout{{{_CACHE}, reason="{reason}", instance="{replica}"}}': steady(1)
        for replica in ("op-1", "op-2")
    }


def _route(reason: str) -> dict[str, str]:
    return {f'modelcache_cache_route{{{_CACHE}, reason="{reason}"}}': steady(1)}


def _said(kind: str, reason: str) -> dict[str, str]:
    return _told(kind, reason, steady(1))


def _told(kind: str, reason: str, values: str) -> dict[str, str]:
    return {f'modelcache_{kind}_reason{{{_CACHE}, reason="{reason}"}}': values}


def _cache_ready(value: float) -> dict[str, str]:
    return {f"modelcache_cache_ready{{{_CACHE}}}": steady(value)}


def _copies_failed(values: str) -> dict[str, str]:
    return _copies("failed", values)


def _copies(state: str, values: str) -> dict[str, str]:
    return {f'modelcache_cache_copies{{{_CACHE}, state="{state}"}}': values}


def _short(word: str, verified: str, *, is_ready: bool) -> dict[str, str]:
    """Some copies fail, always others, while so many are verified."""
    failing = _copies("failed", steady(2)) | _copies("ready", verified)
    return _said("cache", word) | _cache_ready(is_ready) | failing


def _failing(reason: str) -> dict[str, str]:
    """Too few copies, for what an agent says of the only one."""
    return _said("cache", reason) | _cache_ready(0) | _copies_failed(steady(1)) | _reason(reason, 1)


def _source(reason: str) -> dict[str, str]:
    return {f'modelcache_version_source{{{_CACHE}, reason="{reason}"}}': steady(1)}


def _time(began: float, ends: float) -> dict[str, str]:
    """A canary's, in seconds, as two replicas tell it."""
    name = "modelcache_cache_canary_{}_timestamp_seconds"
    return {
        f'{name.format(what)}{{{_CACHE}, instance="{replica}"}}': steady(at)
        for what, at in (("start", began), ("deadline", ends))
        for replica in ("op-1", "op-2")
    }


def _certificates(serving: float, authority: float, agent: float) -> dict[str, str]:
    return {
        f'{_EXPIRY}{{certificate="serving", instance="op-1"}}': steady(serving),
        f'{_EXPIRY}{{certificate="authority", instance="op-1"}}': steady(authority),
        f"modelcache_agent_certificate_expiry_timestamp_seconds{{{_NODE}}}": steady(agent),
    }


def _rotation_due(at: float) -> dict[str, str]:
    name = "modelcache_operator_authority_rotation_timestamp_seconds"
    return {f'{name}{{instance="op-1"}}': steady(at)}


_DAY = 86_400.0
_SOUND = (7 * _DAY, 3650 * _DAY, 2 * 3600.0)
_LEADING = {f'{_LEADER}{{instance="op-1"}}': steady(1)}
_SERVING = {f'{_EXPIRY}{{certificate="serving", instance="op-1"}}': steady(_SOUND[0])}

# Filled within a quarter of an hour, and nothing more comes.
_FULL_SOON = f"0+9x15 135x{MINUTES - 16}"

# promtool's clock begins at 0, and each scene is looked at after an hour.
SCENES: Mapping[str, tuple[Scene, ...]] = {
    "ModelCacheHitRateLow": (
        Scene(fires=_attaches(1, 3), quiet=_attaches(3, 1)),
        Scene(fires=_attaches(0, 1), quiet=_attaches(0, 0.1)),
    ),
    "ModelCacheDiskNearFull": (
        Scene(
            fires={f"modelcache_agent_disk_pressure{{{_NODE}}}": steady(1)},
            quiet={f"modelcache_agent_disk_pressure{{{_NODE}}}": steady(0)},
        ),
        Scene(fires=_reason("InsufficientSpace", 2), quiet=_reason("Cached", 2)),
        Scene(fires=_failing("InsufficientSpace"), quiet=_reason("Cached", 1)),
        Scene(
            fires=_failing("DiskPressure")
            | {f"modelcache_agent_disk_pressure{{{_NODE}}}": steady(1)},
            quiet=_reason("Cached", 1),
        ),
        Scene(
            fires=_reason("DiskPressure", 1)
            | {f"modelcache_agent_disk_pressure{{{_NODE}}}": steady(1)},
            quiet=_reason("Waiting", 1),
        ),
        # What was given up for it has not failed.
        Scene(
            fires=_said("cache", "DiskPressure")
            | _cache_ready(0)
            | _copies_failed(steady(0))
            | {f"modelcache_agent_disk_pressure{{{_NODE}}}": steady(1)},
            quiet=_reason("Waiting", 1),
        ),
    ),
    "ModelCacheFetchStalled": (
        Scene(fires=_transfer(steady(5e6), steady(0)), quiet=_transfer(growing(1e6), steady(0))),
        Scene(fires=_reason("TransferStalled", 1), quiet=_transfer(steady(5e6), growing(1e6))),
        Scene(
            fires=_seen("TransferStalled", coming_and_going(1)),
            # One file of an hour: no byte counts as verified before its last has come.
            quiet=_transfer(growing(5e8), steady(0))
            | {f"modelcache_agent_fetch_verified_bytes_total{{{_NODE}}}": steady(0)},
        ),
        Scene(fires=_failing("TransferStalled"), quiet=_seen("TransferStalled", once(1))),
        # Nothing for 27 minutes, and for a quarter of an hour.
        Scene(
            fires=_transfer("0+1e6x33 3.3e7x26", steady(0)),
            quiet=_transfer("0+1e6x20 2e7x13 2e7+1e6x25", steady(0)),
        ),
    ),
    "ModelCacheSourceThrottled": (
        # One node is enough; one retry in two minutes is nothing.
        Scene(fires=_retries(growing(1)), quiet=_retries(growing(0.5))),
        # Three minutes in which a load ramps up.
        Scene(fires=_retries("0+1x24 25+20x35"), quiet=_retries("0x20 40+40x2 120x37")),
        Scene(fires=_reason("Throttled", 3), quiet=_reason("Queued", 3)),
        Scene(fires=_seen("Throttled", coming_and_going(1)), quiet=_reason("Queued", 3)),
        Scene(fires=_failing("Throttled"), quiet=_seen("Throttled", once(3))),
    ),
    "ModelCacheDigestMismatch": (
        Scene(fires=_reason("DigestMismatch", 1), quiet=_reason("Verifying", 1)),
        Scene(fires=_failing("DigestMismatch"), quiet=_reason("Verifying", 1)),
        Scene(
            fires={
                f'modelcache_agent_failures_total{{reason="DigestMismatch", {_NODE}}}': growing(0.1)
            },
            quiet={
                f'modelcache_agent_failures_total{{reason="TransferFailed", {_NODE}}}': growing(0.1)
            },
        ),
    ),
    "ModelCacheBytesDamaged": (
        Scene(
            fires={f"modelcache_agent_damaged_pieces_total{{{_NODE}}}": growing(0.05)},
            quiet={f"modelcache_agent_damaged_pieces_total{{{_NODE}}}": steady(3)},
        ),
        Scene(fires=_reason("Damaged", 1), quiet=_reason("Verifying", 1)),
        Scene(fires=_failing("Damaged"), quiet=_reason("Verifying", 1)),
    ),
    "ModelCacheAgentSilent": (
        Scene(
            fires={'modelcache_node_ready{node="n1", instance="op-1"}': steady(0)},
            # One replica is behind.
            quiet={
                'modelcache_node_ready{node="n1", instance="op-1"}': steady(0),
                'modelcache_node_ready{node="n1", instance="op-2"}': steady(1),
            },
        ),
    ),
    "ModelCacheRolloutStuck": (
        *(
            Scene(fires=_rollout(reason), quiet=_rollout("WeightReached"))
            for reason in (
                *("CanaryLoading", "CanaryDoesNotFit", "GateFailed", "GateUnreachable"),
                # What its copies failed of, what its nodes lack, what its version is kept by.
                *("NotAModel", "AuthFailed", "DiskPressure", "SourceGone"),
            )
        ),
        Scene(fires=_route("RouteContested"), quiet=_route("RouteWeightsSet")),
    ),
    "ModelCacheCanaryForgotten": (
        Scene(
            fires=_rollout("WeightReached") | _time(-21 * 3600.0, 3 * 3600.0),
            quiet=_rollout("WeightReached") | _time(-4 * 3600.0, 20 * 3600.0),
        ),
        # The last four hours of a short time are no neglect, nor is the last quarter of a month.
        Scene(
            fires=_rollout("WeightReached") | _time(-2 * 3600.0, 1.1 * 3600.0),
            quiet=_rollout("WeightReached") | _time(0.0, 4 * 3600.0),
        ),
        Scene(
            fires=_rollout("CanaryExpired"),
            quiet=_rollout("WeightReached") | _time(-600 * 3600.0, 7 * 3600.0),
        ),
        Scene(
            fires=_rollout("CanaryExpired"),
            quiet=_rollout("StepTaken") | _time(-21 * 3600.0, 3 * 3600.0),
        ),
    ),
    "ModelCacheQuotaRefused": (
        Scene(
            fires={f"modelcache_cache_quota_exceeded{{{_CACHE}}}": steady(1)},
            quiet={f"modelcache_cache_quota_exceeded{{{_CACHE}}}": steady(0)},
        ),
    ),
    "ModelCacheNotReady": (
        Scene(
            fires=_said("cache", "NoEligibleNode") | _cache_ready(0),
            quiet=_said("cache", "Downloading") | _cache_ready(0),
        ),
        Scene(
            fires=_said("cache", "NeverFits") | _cache_ready(0),
            quiet=_said("cache", "Cached") | _cache_ready(1),
        ),
        # The operator has no place for it: no agent tells of a full disk.
        Scene(
            fires=_said("cache", "InsufficientSpace") | _cache_ready(0),
            quiet=_said("cache", "QuotaExceeded") | _cache_ready(0),
        ),
        # Each failure is followed by another try.
        Scene(
            fires=_told("cache", "EndpointUnreachable", coming_and_going(1)) | _cache_ready(0),
            quiet=_told("cache", "EndpointUnreachable", coming_and_going(1)) | _cache_ready(1),
        ),
        # On several nodes in turn: one of them always tries.
        Scene(
            fires=_said("cache", "Downloading")
            | _cache_ready(0)
            | _copies_failed(coming_and_going(1)),
            quiet=_said("cache", "Downloading") | _cache_ready(0) | _copies_failed(steady(0)),
        ),
        # The kubelet's pressure, of which no agent tells.
        Scene(
            fires=_said("cache", "DiskPressure") | _cache_ready(0),
            quiet=_said("cache", "Loading") | _cache_ready(0),
        ),
        # A large fleet fills, and one node or another always fails for a while.
        Scene(
            fires=_short("Downloading", _FULL_SOON, is_ready=False),
            quiet=_short("Downloading", growing(9), is_ready=False),
        ),
    ),
    "ModelCacheDegraded": (
        Scene(
            fires=_short("Degraded", _FULL_SOON, is_ready=True),
            quiet=_short("Degraded", growing(9), is_ready=True),
        ),
        # A copy that comes and goes is no progress.
        Scene(
            fires=_short("Degraded", " ".join(["5x4 6x2"] * 8), is_ready=True),
            quiet=_short("Degraded", "1x14 2x14 3x14 4x15", is_ready=True),
        ),
        Scene(
            fires=_told("cache", "Degraded", coming_and_going(1)) | _cache_ready(1),
            quiet=_said("cache", "Downloading") | _cache_ready(1),
        ),
    ),
    "ModelCacheVersionNotReady": (
        Scene(fires=_said("version", "AuthFailed"), quiet=_said("version", "Resolved")),
    ),
    "ModelCacheSourceChanged": (Scene(fires=_source("SourceGone"), quiet=_source("Resolved")),),
    "ModelCacheCertificateNearExpiry": (
        Scene(fires=_certificates(_DAY, *_SOUND[1:]), quiet=_certificates(*_SOUND)),
        Scene(fires=_certificates(_SOUND[0], 20 * _DAY, _SOUND[2]), quiet=_certificates(*_SOUND)),
        Scene(fires=_certificates(*_SOUND[:2], 3700.0), quiet=_certificates(*_SOUND)),
    ),
    "ModelCacheAuthorityNotRotated": (
        Scene(fires=_rotation_due(-2 * 3600.0), quiet=_rotation_due(0)),
    ),
    "ModelCacheOperatorAbsent": (
        Scene(
            fires={f'{_LEADER}{{instance="op-1"}}': steady(0)} | _SERVING,
            quiet={f'{_LEADER}{{instance="op-2"}}': steady(0)},
        ),
        # It leads, and has no certificate to serve grants with.
        Scene(fires=_LEADING, quiet={}),
        Scene(fires={}, quiet={}),
    ),
}


def with_operator(alert: str, series: Mapping[str, str], *, fires: bool) -> dict[str, str]:
    """The scene with an operator that leads and serves, unless that is what is missing."""
    if fires and alert == "ModelCacheOperatorAbsent":
        return dict(series)
    return {**_SERVING, **series, **_LEADING}
