"""docs/tutorial.md as a program: its commands, section by section."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.commands import run_quietly
from modelcache_testbed.programs import helm, kubectl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[3]
TUTORIAL = ROOT / "docs" / "tutorial.md"
_PART = re.compile(
    r"^## (?P<title>[^\n]+)$|^```console\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL
)
# A pipe or a loop that fails ends the block, as a reader would stop there.
_SHELL = ("bash", "-euo", "pipefail", "-c")


@dataclass(frozen=True)
class Section:
    """A heading, and the blocks of commands below it."""

    title: str
    blocks: Sequence[str]

    def run(self, environment: Mapping[str, str], *, seconds: float = 300) -> str:
        """Run all blocks, each in a shell of its own; TestbedError if a command fails."""
        return "".join(
            run_quietly(*_SHELL, block, environment=environment, folder=ROOT, seconds=seconds)
            for block in self.blocks
        )


def read_sections(text: str) -> list[Section]:
    """Return the sections that have commands, in their order."""
    found: dict[str, list[str]] = {}
    title = ""
    for part in _PART.finditer(text):
        if part["title"]:
            title = part["title"]
        else:
            found.setdefault(title, []).append(part["commands"])
    return [Section(title, tuple(blocks)) for title, blocks in found.items()]


def build_environment(kubeconfig: Path, folder: Path, **settings: str) -> dict[str, str]:
    """What the commands find: a cluster, and kubectl with our plugin, and helm, on the PATH.

    ``folder`` takes links to the programs.
    """
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, program in (("helm", helm()), ("kubectl", kubectl())):
        link = programs / name
        if not link.exists():
            link.symlink_to(program)
    path = (str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "KUBECONFIG": str(kubeconfig),
        **settings,
    }
