"""The CSI process: `modelcache-agent csi --help`. It mounts and unmounts; it needs no agent.

Exit codes: 0 stopped as told, 1 the kubelet refused the driver, 2 it must not start as configured.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from modelcache_agent.config import (
    ConfigError,
    Option,
    Program,
    parse_level,
    parse_path,
    parse_text,
    read_options,
)
from modelcache_agent.log import set_up_logging
from modelcache_agent.volume.csi_server import Driver, Sockets, start_server
from modelcache_agent.volume.propagation import is_shared
from modelcache_agent.volume.publisher import Publisher

_log = logging.getLogger(__name__)
_EXIT_FAILED = 1
_EXIT_REFUSED = 2
_GRACE_SECONDS = 5.0
_PROGRAM: Final = Program("modelcache-agent csi", "Mounts the volumes of pods on one node.")
OPTIONS: Final = (
    Option("node-name", "Name of the Node.", parse_text, is_required=True),
    Option("store", "Folder of the store, the same as the agent's.", parse_path, is_required=True),
    Option(
        "kubelet-dir",
        "The kubelet's --root-dir, mounted at this very path, Bidirectional.",
        parse_path,
        "/var/lib/kubelet",
    ),
    Option("log-level", "debug, info, warning or error.", parse_level, "info"),
)


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    try:
        values = read_options(_PROGRAM, OPTIONS, arguments, os.environ)
        _check_folders(values)
    except ConfigError as error:
        print(f"modelcache-agent csi: {error}", file=sys.stderr)  # noqa: T201 - no logging yet
        return _EXIT_REFUSED
    set_up_logging(values["log_level"])
    # Users of every pod walk through the folders made here.
    os.umask(0o022)
    sockets = Sockets(values["kubelet_dir"])
    publisher = Publisher(values["store"], values["kubelet_dir"])
    stop, refused = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    publisher.sweep()
    driver = Driver(publisher, sockets, values["node_name"], _find_version(), refused, stop)
    server = start_server(driver)
    _log.info("node=%s store=%s socket=%s", driver.node_name, values["store"], sockets.csi)
    stop.wait()
    # Without its socket the kubelet asks nobody until our successor is there.
    sockets.registration.unlink(missing_ok=True)
    server.stop(_GRACE_SECONDS).wait()
    return _EXIT_FAILED if refused.is_set() else 0


def _check_folders(values: dict[str, object]) -> None:
    for field in ("store", "kubelet_dir"):
        if not os.path.isdir(str(values[field])):  # noqa: PTH112 - a plain question
            raise ConfigError(
                f"--{field.replace('_', '-')} {values[field]} is no folder: mount the host's there"
            )
    pods = Path(str(values["kubelet_dir"])) / "pods"
    if not is_shared(pods, Path("/proc/self/mountinfo").read_text("utf-8", "replace")):
        raise ConfigError(
            f"mounts below {pods} would be seen by nobody: give the volume mount of --kubelet-dir "
            "mountPropagation: Bidirectional"
        )


def _find_version() -> str:
    try:
        return version("modelcache")
    except PackageNotFoundError:
        return "unknown"
