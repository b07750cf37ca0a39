"""What this machine must have for real nodes, and installing what a package manager can add."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.commands import run_quietly
from modelcache_testbed.console import say
from modelcache_testbed.errors import ProgramMissingError, TestbedError
from modelcache_testbed.real_nodes.cgroups import tracking_hierarchy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Debian's names: the program that is looked for, and the package that brings it.
NODE_PACKAGES: Mapping[str, str] = {
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "nft": "nftables",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "mkfs.ext4": "e2fsprogs",
    "nsenter": "util-linux",
}
IMAGE_PACKAGES: Mapping[str, str] = {"dockerd": "docker.io", "debootstrap": "debootstrap"}
_HIDDEN_FROM_NODES = ("/run", "/var/lib", "/var/log", "/proc", "/sys")


def require_machine(folders: Iterable[Path]) -> None:
    """Raise TestbedError unless real nodes can run here with their files in ``folders``."""
    if os.geteuid():
        raise TestbedError(
            "profile nodes makes namespaces, mounts and cgroups: run it as root"
            " (profile control-plane needs no root)"
        )
    tracking_hierarchy()
    for folder in folders:
        if any(folder.resolve().is_relative_to(hidden) for hidden in _HIDDEN_FROM_NODES):
            raise TestbedError(
                f"{folder} lies where each node has a folder of its own: choose another by"
                " MODELCACHE_STATE_DIR and MODELCACHE_CACHE_DIR"
            )


def missing_packages(wanted: Mapping[str, str]) -> list[str]:
    """Return the packages whose program is not there."""
    return sorted({package for program, package in wanted.items() if not shutil.which(program)})


def ensure_packages(wanted: Mapping[str, str]) -> None:
    """Install the packages that are missing; ProgramMissingError says which if that cannot be."""
    missing = missing_packages(wanted)
    if not missing:
        return
    command = f"apt-get install {' '.join(missing)}"
    if os.geteuid() or not shutil.which("apt-get"):
        raise ProgramMissingError(f"this machine lacks {', '.join(missing)}: {command}")
    say(f"installing {', '.join(missing)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        run_quietly("apt-get", "update", "-qq", environment=quiet)
        flags = ("-y", "-qq", "--no-install-recommends")
        run_quietly("apt-get", "install", *flags, *missing, environment=quiet)
    except TestbedError as error:
        raise ProgramMissingError(f"{command} failed: {error}") from None
    still = missing_packages(wanted)
    if still:
        raise ProgramMissingError(f"installed, and still without program: {', '.join(still)}")
