"""How a demo talks: one line for each step, one for each thing that holds."""

from __future__ import annotations

from typing import Protocol

from modelcache_testbed.console import say
from modelcache_testbed.errors import TestbedError


class Demo(Protocol):
    """One run of a demo. What it starts stays up until `down`."""

    def run(self) -> None:
        """Show the main job, step by step; TestbedError where something does not hold."""

    def down(self) -> None:
        """End everything that any run of it started and remove its files."""

    @property
    def logs(self) -> str:
        """Say where to look after a failure."""


_numbers = iter(range(1, 100))


def start_step(text: str) -> None:
    """Say in one line what the next step shows."""
    say(f"\n{next(_numbers)}. {text}")


def show(text: str) -> None:
    """Print what a program said, set off from the demo's own words."""
    for line in text.rstrip().splitlines():
        say(f"   {line}")


def check(claim: bool, text: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Say what holds, or end the demo saying what does not."""
    if not claim:
        raise TestbedError(f"this should hold and does not: {text}")
    say(f"   ok: {text}")
