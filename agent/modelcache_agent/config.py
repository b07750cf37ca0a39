"""What can be set, by flag or environment. A flag beats the environment, that beats the default."""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from modelcache_agent.decide.policies import POLICIES, EvictionPolicy, find_policy
from modelcache_api.names import ENV_PREFIX_AGENT
from modelcache_api.quantities import parse_bytes

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SECONDS: Final = {"ms": 0.001, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_LEVELS: Final = ("debug", "info", "warning", "error")
MOST_STREAMS: Final = 64
_MOST_MODELS: Final = 16
# Slower readers are taken for dead by object stores, and cut off.
_LEAST_BANDWIDTH: Final = 64 * 1024
_LEAST_PEER_BANDWIDTH: Final = 4 * 1024 * 1024
# A disk of 1 TiB would take two weeks.
_LEAST_SCRUB_BANDWIDTH: Final = 1024 * 1024
_NEVER: Final = "never"
_MOST_SERVES: Final = 128
_LEAST_INPUT_LOG: Final = 1024 * 1024
_HIGHEST_PORT: Final = 65535
_WHOLE_DISK: Final = 100
EMULATED: Final = "emulated"
GPU_DEVICES: Final = ("cuda-vmm", EMULATED)


class ConfigError(Exception):
    """An option is missing or has no meaning; one sentence that names it and the cure."""


@dataclass(frozen=True, slots=True)
class Config:
    """The agent's settings. Each field is the option of its name; `OPTIONS` documents them."""

    node_name: str | None
    node_uid: str | None
    store: Path
    capacity: int | None
    disk_policy: EvictionPolicy
    disk_high_watermark: int | None
    disk_low_watermark: int | None
    min_residency: float
    drain_deadline: float
    input_log: int | None
    host_capacity: int
    gpu_capacity: int
    gpu_device: str
    pod_resources: Path | None
    require_mountpoint: bool
    kubeconfig: Path | None
    namespace: str
    operator_url: str
    operator_ca_file: Path | None
    grant_token_file: Path | None
    lease_interval: float
    relabel_interval: float
    streams: int
    max_models: int
    max_bandwidth: int | None
    scrub_interval: float | None
    scrub_bandwidth: int
    peers: bool
    peer_address: str | None
    peer_port: int
    peer_bandwidth: int | None
    peer_serves: int
    metrics_port: int
    log_level: str


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `parse` raises ValueError with the cure."""

    name: str
    help: str
    parse: Callable[[str], Any]
    default: str | None = None
    is_required: bool = False
    is_flag: bool = False
    is_positional: bool = False

    @property
    def field(self) -> str:
        """The name of its field in Config."""
        return self.name.replace("-", "_")

    @property
    def spelling(self) -> str:
        """How it is written on the command line."""
        return self.name.upper() if self.is_positional else f"--{self.name}"

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"{ENV_PREFIX_AGENT}{self.field.upper()}"


@dataclass(frozen=True, slots=True)
class Program:
    """What `--help` says of a command."""

    name: str
    purpose: str


_PROGRAM: Final = Program(
    "modelcache-agent",
    "Caches model weights on one Kubernetes node. Before any option, one of the words csi, wait, "
    "warmup, adopt, get and replay starts another program: modelcache-agent get --help.",
)


def parse_config(arguments: Sequence[str], environment: Mapping[str, str]) -> Config:
    """The settings.

    Raises:
        ConfigError: an option is missing, unknown or wrong.
        SystemExit: `--help` was printed.
    """
    config = Config(**read_options(_PROGRAM, OPTIONS, arguments, environment))
    if config.peers and config.peer_address is None:
        raise ConfigError(
            "--peers needs --peer-address (or MODELCACHE_AGENT_PEER_ADDRESS): the IP address at "
            "which other nodes' agents reach this one"
        )
    return config


def read_options(
    program: Program,
    options: Sequence[Option],
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """The options' values by field.

    Raises:
        ConfigError: an option is missing, unknown or wrong.
        SystemExit: `--help` was printed.
    """
    given = vars(_build_parser(program, options).parse_args(list(arguments)))
    values: dict[str, Any] = {}
    for option in options:
        text, origin = given[option.field], option.spelling
        if text is None and environment.get(option.variable):
            text, origin = environment[option.variable], option.variable
        text = option.default if text is None else text
        if text is None:
            if option.is_required:
                raise ConfigError(
                    f"{option.spelling} (or {option.variable}) is missing: {option.help}"
                )
            values[option.field] = None
            continue
        try:
            values[option.field] = option.parse(text)
        except ValueError as error:
            raise ConfigError(f"{origin}: {error}") from None
    return values


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ConfigError(f"{message}: see --help")


def _build_parser(program: Program, options: Sequence[Option]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=program.name,
        description=program.purpose,
        epilog=f"Each option is also read from {ENV_PREFIX_AGENT}<NAME>; the flag wins.",
        allow_abbrev=False,
    )
    for option in options:
        default = f" (default: {option.default})" if option.default is not None else ""
        text = (option.help + default).replace("%", "%%")
        if option.is_positional:
            parser.add_argument(option.field, nargs="?", metavar=option.spelling, help=text)
            continue
        more: dict[str, Any] = {"nargs": "?", "const": "true"} if option.is_flag else {}
        parser.add_argument(
            f"--{option.name}",
            dest=option.field,
            metavar="BOOL" if option.is_flag else option.field.upper(),
            help=text,
            **more,
        )
    return parser


def parse_text(value: str) -> str:
    """Any text but none."""
    if not value.strip():
        raise ValueError("it is empty: leave it out or give a value")
    return value.strip()


def parse_path(value: str) -> Path:
    """An absolute path."""
    return Path(parse_text(value)).absolute()


def _boolean(value: str) -> bool:
    if value.lower() in {"true", "1", "yes"}:
        return True
    if value.lower() in {"false", "0", "no"}:
        return False
    raise ValueError(f"{value!r} is neither true nor false")


def _capacity(value: str) -> int:
    size = parse_bytes(value)
    if size == 0:
        raise ValueError("0 bytes hold nothing: write for example 500Gi")
    return size


def _tier_capacity(value: str) -> int:
    try:
        return parse_bytes(value)
    except ValueError:
        message = f"{value!r} is not a number of bytes: write for example 64Gi, or 0"
        raise ValueError(message) from None


def _gpu_device(value: str) -> str:
    if value not in GPU_DEVICES:
        raise ValueError(f"{value!r} is not one of {', '.join(GPU_DEVICES)}")
    return value


def _rate(value: str) -> int:
    try:
        return parse_bytes(value)
    except ValueError:
        message = f"{value!r} is not a number of bytes a second: write for example 500Mi"
        raise ValueError(message) from None


def parse_bandwidth(value: str) -> int:
    """Bytes a second."""
    rate = _rate(value)
    if rate < _LEAST_BANDWIDTH:
        raise ValueError(
            f"{value!r} bytes a second are too few to fetch a model: give 64Ki at least, "
            "or leave it out for no cap"
        )
    return rate


def _peer_bandwidth(value: str) -> int:
    rate = parse_bandwidth(value)
    if rate < _LEAST_PEER_BANDWIDTH:
        raise ValueError(
            f"{value!r} bytes a second are so few that others take this node for stalled: "
            "give 4Mi at least, or switch peers off"
        )
    return rate


def _scrub_bandwidth(value: str) -> int:
    rate = _rate(value)
    if rate < _LEAST_SCRUB_BANDWIDTH:
        raise ValueError(
            f"{value!r} bytes a second are too few to check a disk: give 1Mi at least, "
            "or --scrub-interval=never"
        )
    return rate


def _scrub_interval(value: str) -> float | None:
    if value.strip() == _NEVER:
        return None
    try:
        return parse_duration(value)
    except ValueError:
        message = f"{value!r} is not a duration: write for example 168h, or never"
        raise ValueError(message) from None


def _input_log(value: str) -> int:
    size = parse_bytes(value)
    if size < _LEAST_INPUT_LOG:
        raise ValueError(f"{value!r} holds no world of a busy node: give 1Mi at least")
    return size


def _address(value: str) -> str:
    try:
        return str(ipaddress.ip_address(value.strip()))
    except ValueError:
        raise ValueError(f"{value!r} is not an IP address") from None


def parse_duration(value: str) -> float:
    """Seconds."""
    match = _DURATION.fullmatch(value.strip())
    if match is None or float(match.group(1)) == 0:
        raise ValueError(f"{value!r} is not a duration: write for example 60s or 5m")
    return float(match.group(1)) * _SECONDS[match.group(2)]


def number_from(lowest: int, highest: int) -> Callable[[str], int]:
    """A parser of whole numbers within these bounds."""

    def parse(value: str) -> int:
        if not value.strip().isdecimal() or not lowest <= int(value) <= highest:
            raise ValueError(f"{value!r} is not a whole number from {lowest} to {highest}")
        return int(value)

    return parse


def parse_level(value: str) -> str:
    """A level of the log."""
    if value.lower() not in _LEVELS:
        raise ValueError(f"{value!r} is not one of {', '.join(_LEVELS)}")
    return value.lower()


def parse_operator_url(value: str) -> str:
    """Where the operator grants."""
    if not re.fullmatch(r"https://[^/\s?#@]+(/[^\s?#]*)?", value):
        raise ValueError(f"{value!r} is not an https:// address of the operator's grant service")
    return value


OPTIONS: Final = (
    Option("node-name", "Name of the Node; by default from the grant token's claims.", parse_text),
    Option("node-uid", "UID of the Node; by default from the grant token's claims.", parse_text),
    Option(
        "store",
        "Folder of the store; it must exist and be ours alone.",
        parse_path,
        is_required=True,
    ),
    Option("capacity", "Bytes the cache may use, e.g. 500Gi; default 90% of the disk.", _capacity),
    Option(
        "disk-policy",
        f"Which contents give way to newcomers: {', '.join(POLICIES)}.",
        find_policy,
        "lru",
    ),
    Option(
        "disk-high-watermark",
        "Percent of the file system in use, whoever uses it, from which unused models go and "
        "nothing is fetched; 100: never. Default: 80, and 100 on a disk of its own.",
        number_from(2, _WHOLE_DISK),
    ),
    Option(
        "disk-low-watermark",
        "Percent in use at which that ends; default: 5 below the high one.",
        number_from(1, _WHOLE_DISK - 1),
    ),
    Option(
        "min-residency",
        "How long a model goes after all others that may go, counted from its arrival.",
        parse_duration,
        "10m",
    ),
    Option(
        "drain-deadline",
        "How long a version that has left the spec stays in volumes of pods whose processes use "
        "it.",
        parse_duration,
        "1h",
    ),
    Option(
        "input-log",
        "Most bytes of a log of what is decided upon, in the store, for replay; at least 1Mi. "
        "Default: none is written.",
        _input_log,
    ),
    Option(
        "host-capacity",
        "Bytes of host memory in which models may be locked, e.g. 64Gi; 0: none. The agent's "
        "memory limit must be 15% more at least.",
        _tier_capacity,
        "0",
    ),
    Option(
        "gpu-capacity",
        "Experimental. Bytes of one card's memory in which models may be held, e.g. 40Gi; 0: none.",
        _tier_capacity,
        "0",
    ),
    Option(
        "gpu-device",
        f"What that memory is, one of {', '.join(GPU_DEVICES)}: the first card of NVIDIA that this "
        "process sees, or host memory that plays one, for tests and laptops.",
        _gpu_device,
        GPU_DEVICES[0],
    ),
    Option(
        "pod-resources",
        "Socket of the kubelet that says which pod was given which card. Default: the kubelet's "
        "own, and for the emulated device none: then every pod may map it.",
        parse_path,
    ),
    Option(
        "require-mountpoint",
        "Refuse to start unless a whole disk is mounted at the store's folder or above it. A part "
        "of one, as a pod sees a hostPath with no mount under it, does not count: give the disk's "
        "own mount point as hostPath, and a folder below it as --store.",
        _boolean,
        "false",
        is_flag=True,
    ),
    Option("kubeconfig", "How to reach the API server; default: as this pod may.", parse_path),
    Option("namespace", "Namespace of ModelCache itself.", parse_text, "modelcache-system"),
    Option("operator-url", "Where the operator grants.", parse_operator_url, is_required=True),
    Option(
        "operator-ca-file", "PEM file of the operator's CA; default: the system's CAs.", parse_path
    ),
    Option("grant-token-file", "Projected token with audience modelcache-grant.", parse_path),
    Option("lease-interval", "How often the Lease is renewed.", parse_duration, "60s"),
    Option(
        "relabel-interval",
        "How often the Node's labels are applied again without a cause.",
        parse_duration,
        "30m",
    ),
    Option(
        "streams", "Requests to object stores at the same time.", number_from(1, MOST_STREAMS), "4"
    ),
    Option("max-models", "Models fetched at the same time.", number_from(1, _MOST_MODELS), "2"),
    Option(
        "max-bandwidth",
        "Bytes a second over all streams, e.g. 500Mi; default: no cap.",
        parse_bandwidth,
    ),
    Option(
        "scrub-interval",
        "How old the last check of a file may get before all of it is read again; or never.",
        _scrub_interval,
        "168h",
    ),
    Option(
        "scrub-bandwidth",
        "Bytes a second that are read for such checks.",
        _scrub_bandwidth,
        "50Mi",
    ),
    Option(
        "peers",
        "Read from other nodes' agents what they hold, and serve them.",
        _boolean,
        "false",
        is_flag=True,
    ),
    Option("peer-address", "IP address at which other agents reach this one.", _address),
    Option(
        "peer-port",
        "Port for other agents; 0 is any free one.",
        number_from(0, _HIGHEST_PORT),
        "9405",
    ),
    Option(
        "peer-bandwidth",
        "Bytes a second served to other agents, e.g. 500Mi; default: as fast as it goes.",
        _peer_bandwidth,
    ),
    Option(
        "peer-serves",
        "Answers to other agents at the same time.",
        number_from(1, _MOST_SERVES),
        "8",
    ),
    Option(
        "metrics-port",
        "Port of /metrics, /healthz, /readyz and /decisions; 0 serves none.",
        number_from(0, _HIGHEST_PORT),
        "9404",
    ),
    Option("log-level", f"One of {', '.join(_LEVELS)}.", parse_level, "info"),
)
