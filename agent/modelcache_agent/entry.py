"""`modelcache-agent [csi|wait|warmup|adopt|get|replay] ...`: each imports only what it needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

_AGENT: Final = "modelcache_agent.__main__"
_PROGRAMS: Final = {
    "csi": "modelcache_agent.volume.csi",
    "wait": "modelcache_agent.volume.wait",
    "warmup": "modelcache_agent.warmup.program",
    "adopt": "modelcache_agent.adopt.program",
    "get": "modelcache_agent.get.program",
    "replay": "modelcache_agent.inputs.program",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The program named by the first word, or the agent itself."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = _PROGRAMS.get(given[0]) if given else None
    program = import_module(name or _AGENT)
    return int(program.main(given[1:] if name else given))


if __name__ == "__main__":
    sys.exit(main())
