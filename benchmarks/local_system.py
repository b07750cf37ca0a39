"""A whole ModelCache on this machine, for a figure that needs one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modelcache_testbed import LocalCluster
from modelcache_testbed.seaweed import Seaweed
from modelcache_testbed.system import System


@contextmanager
def local_system() -> Iterator[tuple[LocalCluster, Seaweed, System]]:
    """All three running and the system installed, without an operator; nothing is left behind."""
    cluster, store = LocalCluster.ephemeral(), Seaweed.ephemeral()
    with tempfile.TemporaryDirectory() as folder:
        system = System(cluster, Path(folder) / "system")
        try:
            cluster.up(ephemeral=True)
            store.up(ephemeral=True)
            system.install()
            yield cluster, store, system
        finally:
            system.remove()
            store.down()
            cluster.down()
