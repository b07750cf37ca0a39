"""Keeping played nodes fresh as a program: ``keep_nodes KUBECONFIG READY_FILE``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from modelcache_testbed.node_keeper import NodeKeeper


def main() -> None:
    """Keep nodes until ended; writes the own pid to READY_FILE after each round."""
    kubeconfig, ready_file = map(Path, sys.argv[1:3])
    keeper = NodeKeeper(kubeconfig, after_round=lambda: _write_pid(ready_file))
    keeper.run()


def _write_pid(file: Path) -> None:
    file.write_text(str(os.getpid()))


if __name__ == "__main__":
    main()
