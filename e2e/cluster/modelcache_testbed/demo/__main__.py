"""Runs a demo, or takes it down.

python -m modelcache_testbed.demo [--profile control-plane | nodes] [--picture PNG] [--down]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.console import say
from modelcache_testbed.demo.control_plane import ControlPlaneDemo
from modelcache_testbed.demo.on_nodes import NodesDemo
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.programs import kubectl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modelcache_testbed.demo.steps import Demo

_DEMOS: Mapping[str, Callable[[], Demo]] = {"control-plane": ControlPlaneDemo, "nodes": NodesDemo}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo of a profile, or take all demos down."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--profile", choices=_DEMOS, default="control-plane")
    parser.add_argument("--down", action="store_true", help="end every demo, remove their files")
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="PNG",
        help="let a Prometheus read the control-plane demo, and draw the dashboard there",
    )
    options = parser.parse_args(arguments)
    if options.down:
        return _take_down()
    if options.picture is not None and options.profile != "control-plane":
        parser.error("--picture is of the profile control-plane")
    demo = ControlPlaneDemo(options.picture) if options.picture else _DEMOS[options.profile]()
    try:
        kubectl()
        demo.down()
        demo.run()
    except TestbedError as error:
        say(f"\nthe demo failed: {error}")
        say(f"{demo.logs}; `make demo-down` removes everything")
        return 1
    return 0


def _take_down() -> int:
    try:
        for make in _DEMOS.values():
            make().down()
    except TestbedError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
