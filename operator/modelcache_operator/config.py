"""Options of the operator: a flag, else MODELCACHE_OPERATOR_<NAME>, else the default."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from modelcache_api.names import ENV_PREFIX_OPERATOR
from modelcache_operator.sources.hub.endpoint import EXAMPLE, read_endpoint

_LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_MAX_PORT: Final = 65535
# Three lists must fit into half of the time of loss: a longer gap between two is an outage.
_MIN_LISTS_UNTIL_LOST: Final = 6
_SHORTEST_OVERLAP_SECONDS: Final = 1800.0
_PROMETHEUS_EXAMPLE: Final = "write it like https://prometheus.monitoring.svc:9090"


class ConfigError(Exception):
    """An option cannot be used; the message names it and the cure."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Where to listen."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """Everything that can be chosen. Each default is what the chart relies on."""

    kubeconfig: Path | None
    namespace: str
    agent_service_account: str
    grants_bind: Bind
    grants_names: tuple[str, ...]
    grants_for_pods: bool
    http_port: int
    agent_lost_after_seconds: float
    lease_list_interval_seconds: float
    silence_limit_seconds: float
    gate_timeout_seconds: float
    node_ready_timeout_seconds: float
    workers: int
    api_writes_per_second: float
    source_policy: Path | None
    hub_endpoint: str | None
    limits: Path | None
    default_quota: Path | None
    authority_max_age_seconds: float
    authority_overlap_seconds: float
    peers: bool
    peer_topology: tuple[str, ...]
    http_routes: bool
    prometheus_url: str | None
    prometheus_ca_file: Path | None
    prometheus_token_file: Path | None
    leader_elect: bool
    identity: str
    log_level: str


@dataclass(frozen=True, slots=True)
class _Option:
    flag: str
    default: str | None
    parse: Callable[[str], object]
    help: str

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return ENV_PREFIX_OPERATOR + self.flag.removeprefix("--").replace("-", "_").upper()


def _parse_path(text: str) -> Path | None:
    if not text:
        return None
    path = Path(text)
    if not path.is_file():
        raise ValueError(f"there is no file {text}")
    return path


def _parse_seconds(text: str) -> float:
    factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
    try:
        seconds = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds < float("inf"):
        raise ValueError("write a time above zero, for example 300s or 5m")
    return seconds


def _parse_overlap(text: str) -> float:
    seconds = _parse_seconds(text)
    if seconds < _SHORTEST_OVERLAP_SECONDS:
        raise ValueError("write at least 30m: replicas and agents look every few minutes")
    return seconds


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > _MAX_PORT:
        raise ValueError(f"write a port from 0 (any free one) to {_MAX_PORT}")
    return int(text)


def _parse_bind(text: str) -> Bind:
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError("write host:port, for example 0.0.0.0:8443")
    return Bind(host.strip("[]") or "0.0.0.0", _parse_port(port))  # noqa: S104 - a pod's own address


def _parse_names(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise ValueError("write at least one name, several separated by commas")
    return found


def _parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("write a whole number above zero")
    return int(text)


def _parse_rate(text: str) -> float:
    return float(_parse_positive(text))


def _parse_flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("write true or false")
    return text.lower() == "true"


def _parse_hub(text: str) -> str | None:
    if not text:
        return None
    endpoint = read_endpoint(text)
    if endpoint is None:
        raise ValueError(EXAMPLE)
    return endpoint.url


def _parse_prometheus(text: str) -> str | None:
    if not text:
        return None
    try:
        url = urlsplit(text)
        is_plain = url.port != 0 and not (url.username or url.password or url.query or url.fragment)
    except ValueError:
        raise ValueError(_PROMETHEUS_EXAMPLE) from None
    if url.scheme not in {"http", "https"} or not url.hostname or not is_plain:
        raise ValueError(_PROMETHEUS_EXAMPLE)
    return text


def _parse_level(text: str) -> str:
    if text.lower() not in _LOG_LEVELS:
        raise ValueError(f"write one of {', '.join(_LOG_LEVELS)}")
    return text.lower()


def _parse_text(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    return text.strip()


_OPTIONS: Final = {
    "kubeconfig": _Option("--kubeconfig", "", _parse_path, "file; the pod's account without it"),
    "namespace": _Option("--namespace", "modelcache-system", _parse_text, "the operator's own"),
    "agent_service_account": _Option(
        "--agent-service-account", "modelcache-agent", _parse_text, "in the same namespace"
    ),
    "grants_bind": _Option(
        "--grants-bind", "0.0.0.0:8443", _parse_bind, "host:port where agents ask for grants"
    ),
    "grants_names": _Option(
        "--grants-names",
        None,
        _parse_names,
        "DNS names and addresses in the certificate, separated by commas; the Service's name "
        "without it",
    ),
    "grants_for_pods": _Option(
        "--grants-for-pods",
        "false",
        _parse_flag,
        "whether single pods may have grants too, for ModelVersions of their own namespace",
    ),
    "http_port": _Option("--http-port", "8080", _parse_port, "/healthz, /readyz and /metrics"),
    "agent_lost_after_seconds": _Option(
        "--agent-lost-after", "300s", _parse_seconds, "silence that makes an agent count as lost"
    ),
    "lease_list_interval_seconds": _Option(
        "--lease-list-interval", "10s", _parse_seconds, "between two lists of the agents' Leases"
    ),
    "silence_limit_seconds": _Option(
        "--silence-limit",
        "600s",
        _parse_seconds,
        "without the API server, or a watch, until /healthz is red",
    ),
    "gate_timeout_seconds": _Option(
        "--gate-timeout",
        "30s",
        _parse_seconds,
        "that a pod with placement required waits for a node that fetches its model",
    ),
    "node_ready_timeout_seconds": _Option(
        "--node-ready-timeout",
        "300s",
        _parse_seconds,
        "that a fresh node with the taint agent-not-ready waits for models of copies All",
    ),
    "workers": _Option("--workers", "8", _parse_positive, "keys worked on at once"),
    "api_writes_per_second": _Option(
        "--api-writes-per-second", "200", _parse_rate, "writes that the API server is asked to bear"
    ),
    "source_policy": _Option(
        "--source-policy", "", _parse_path, "file with the sources that are allowed beyond default"
    ),
    "hub_endpoint": _Option(
        "--hub-endpoint",
        "",
        _parse_hub,
        "mirror of the hub for hf:// sources without endpoint",
    ),
    "limits": _Option(
        "--limits", "", _parse_path, "file with the limits of the fleet by source and namespace"
    ),
    "default_quota": _Option(
        "--default-quota",
        "",
        _parse_path,
        "file with the quota of namespaces that have none; without it they have no limit",
    ),
    "authority_max_age_seconds": _Option(
        "--authority-max-age",
        "8760h",
        _parse_seconds,
        "age at which the certificate authority is followed by a new one",
    ),
    "authority_overlap_seconds": _Option(
        "--authority-overlap",
        "1h",
        _parse_overlap,
        "how long old and new authority are both trusted, before and after the change",
    ),
    "peers": _Option(
        "--peers", "false", _parse_flag, "whether agents may read from each other what they hold"
    ),
    "peer_topology": _Option(
        "--peer-topology",
        "topology.kubernetes.io/zone,topology.kubernetes.io/region",
        _parse_names,
        "labels of Nodes, from the smallest place to the largest; agents read from near ones first",
    ),
    "http_routes": _Option(
        "--http-routes",
        "false",
        _parse_flag,
        "whether the weight in force is written into the HTTPRoutes that ModelCaches name",
    ),
    "prometheus_url": _Option(
        "--prometheus-url",
        "",
        _parse_prometheus,
        "Prometheus server that is asked the queries of rollout gates; none without it",
    ),
    "prometheus_ca_file": _Option(
        "--prometheus-ca-file", "", _parse_path, "CA of that server; the system's without it"
    ),
    "prometheus_token_file": _Option(
        "--prometheus-token-file", "", _parse_path, "bearer token for that server"
    ),
    "leader_elect": _Option("--leader-elect", "true", _parse_flag, "false for a single replica"),
    "identity": _Option(
        "--identity", None, _parse_text, "this replica; the host's name without it"
    ),
    "log_level": _Option("--log-level", "info", _parse_level, ", ".join(_LOG_LEVELS)),
}


def load_config(
    arguments: Sequence[str], environment: Mapping[str, str], *, hostname: str
) -> OperatorConfig:
    """The configuration. A flag beats the environment.

    Raises:
        ConfigError: with the option, what is wrong and what to write instead.
    """
    parser = argparse.ArgumentParser(
        prog="modelcache-operator",
        description="The operator of ModelCache. The words webhook and cleanup in front start "
        "another program: modelcache-operator cleanup --help.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    for name, option in _OPTIONS.items():
        shown = f" (default {option.default})" if option.default else ""
        parser.add_argument(option.flag, dest=name, help=f"{option.help}{shown}; {option.variable}")
    try:
        given, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise ConfigError(f"{error}: see --help") from error
    if unknown:
        raise ConfigError(f"there is no option {unknown[0]}: see --help")
    values = {
        name: _choose(option, getattr(given, name), environment)
        for name, option in _OPTIONS.items()
    }
    values["identity"] = values["identity"] or hostname
    values["grants_names"] = values["grants_names"] or _service_names(str(values["namespace"]))
    config = OperatorConfig(**values)  # type: ignore[arg-type]
    _check_times(config)
    _check_prometheus(config)
    return config


def _check_prometheus(config: OperatorConfig) -> None:
    is_safe = (config.prometheus_url or "").startswith("https://")
    for flag, file in (
        ("--prometheus-ca-file", config.prometheus_ca_file),
        ("--prometheus-token-file", config.prometheus_token_file),
    ):
        if file is not None and not is_safe:
            raise ConfigError(f"{flag} goes with a --prometheus-url that begins with https://")


def _check_times(config: OperatorConfig) -> None:
    interval, lost_after = config.lease_list_interval_seconds, config.agent_lost_after_seconds
    if interval * _MIN_LISTS_UNTIL_LOST > lost_after:
        raise ConfigError(
            f"--lease-list-interval of {interval:g}s is too long for an --agent-lost-after of "
            f"{lost_after:g}s: write at most {lost_after / _MIN_LISTS_UNTIL_LOST:g}s"
        )


def _choose(option: _Option, flag: str | None, environment: Mapping[str, str]) -> object:
    origin, text = option.flag, flag
    if text is None:
        origin, text = option.variable, environment.get(option.variable)
    if text is None:
        origin, text = option.flag, option.default
    if text is None:
        return None
    try:
        return option.parse(text)
    except ValueError as error:
        raise ConfigError(f"{origin}={text!r}: {error}") from error


def _service_names(namespace: str) -> tuple[str, ...]:
    service = f"modelcache-operator.{namespace}.svc"
    return (service, f"{service}.cluster.local")
