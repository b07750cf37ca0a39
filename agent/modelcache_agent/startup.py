"""What must be true of the store's folder before anything is written to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from modelcache_agent.config import ConfigError
from modelcache_agent.decide.watermarks import NO_WATERMARKS, Watermarks
from modelcache_agent.mounts import describe_missing_disk
from modelcache_api.quantities import format_bytes

_MOUNTINFO: Final = Path("/proc/self/mountinfo")
_DEFAULT_SHARE: Final = 0.9
# The kubelet deletes unused images from 85 % on, and evicts pods from 90 % on.
_DEFAULT_HIGH: Final = 80
_DEFAULT_GAP: Final = 5


def check_store_folder(root: Path, *, require_mountpoint: bool) -> None:
    """Raises ConfigError with the cure if the folder cannot be used."""
    if not root.is_dir():
        what = "a dangling link" if root.is_symlink() else "missing"
        if root.exists():
            what = "no folder"
        raise ConfigError(f"--store {root} is {what}: create the folder or mount the disk there")
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        found = root.stat()
        raise ConfigError(
            f"--store {root} (owner {found.st_uid}, mode {found.st_mode & 0o777:o}) is not "
            f"writable for uid {os.geteuid()}: change its owner or run the agent as root"
        )
    if not require_mountpoint:
        return
    fault = describe_missing_disk(_MOUNTINFO.read_text("utf-8", "surrogateescape"), root.resolve())
    if fault is not None:
        raise ConfigError(
            f"--store {root} {fault}, and --require-mountpoint is set: mount the top folder of a "
            "disk there, so that models do not fill the root"
        )


def choose_capacity(root: Path, wanted_bytes: int | None) -> int:
    """The cache's capacity in bytes: as wanted, else a share of the file system.

    Raises:
        ConfigError: the file system is smaller than what is wanted.
    """
    space = os.statvfs(root)
    size = space.f_blocks * space.f_frsize
    if wanted_bytes is None:
        return int(size * _DEFAULT_SHARE)
    if wanted_bytes > size:
        raise ConfigError(
            f"--capacity {format_bytes(wanted_bytes)} is more than the file system of {root} has "
            f"({format_bytes(size)}): lower it or mount a larger disk"
        )
    return wanted_bytes


def choose_watermarks(root: Path, high: int | None, low: int | None) -> Watermarks:
    """The watermarks of the store's file system.

    Without `high`, 80 % where the kubelet may depend on that file system, and none on a disk of its
    own, which the capacity bounds already; without `low`, five less.

    Raises:
        ConfigError: they leave nothing between them.
    """
    if high is None and low is None:
        mountinfo = _MOUNTINFO.read_text("utf-8", "surrogateescape")
        if describe_missing_disk(mountinfo, root.resolve()) is None:
            return NO_WATERMARKS
    high = _DEFAULT_HIGH if high is None else high
    low = max(1, high - _DEFAULT_GAP) if low is None else low
    if low >= high:
        raise ConfigError(
            f"--disk-low-watermark {low} is not below --disk-high-watermark {high}: pressure "
            "begins at the high one and ends at the low one"
        )
    return Watermarks(high, low)
