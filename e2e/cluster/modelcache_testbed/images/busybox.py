"""The two images that every cluster of real nodes has, made from the machine's own busybox."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.commands import run_quietly
from modelcache_testbed.errors import ProgramMissingError
from modelcache_testbed.images.archive import SmallImage
from modelcache_testbed.real_nodes.container_runtime import PAUSE_IMAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

BUSYBOX_IMAGE = "modelcache.io/testbed/busybox:1"
_PROGRAM = "bin/busybox"


def small_images() -> Sequence[SmallImage]:
    """Return the pause image, which only keeps a pod's namespaces, and one with a shell."""
    found = shutil.which("busybox")
    if found is None:
        raise ProgramMissingError("busybox is not on this machine: apt-get install busybox-static")
    program = {_PROGRAM: Path(found).read_bytes()}
    applets = run_quietly(found, "--list").split()
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"}
    forever = (f"/{_PROGRAM}", "sleep", "infinity")
    return (
        SmallImage(PAUSE_IMAGE, program, forever),
        SmallImage(BUSYBOX_IMAGE, program, ("/bin/sh",), links, folders=("tmp",)),
    )
