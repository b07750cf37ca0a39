"""`modelcache-agent [csi|wait|adopt|get|replay] ...`: each imports only what it needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """The program named by the first word, or the agent itself."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    match given[:1]:
        case ["csi"]:
            from modelcache_agent.volume.csi import main as run_csi  # noqa: PLC0415

            return run_csi(given[1:])
        case ["wait"]:
            from modelcache_agent.volume.wait import main as run_wait  # noqa: PLC0415

            return run_wait(given[1:])
        case ["adopt"]:
            from modelcache_agent.adopt.program import main as run_adopt  # noqa: PLC0415

            return run_adopt(given[1:])
        case ["get"]:
            from modelcache_agent.get.program import main as run_get  # noqa: PLC0415

            return run_get(given[1:])
        case ["replay"]:
            from modelcache_agent.inputs.program import main as run_replay  # noqa: PLC0415

            return run_replay(given[1:])
    from modelcache_agent.__main__ import main as run_agent  # noqa: PLC0415

    return run_agent(given)


if __name__ == "__main__":
    sys.exit(main())
