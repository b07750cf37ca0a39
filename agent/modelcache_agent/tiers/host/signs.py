"""How much memory the node and our cgroup have left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from modelcache_agent.decide.host_pressure import MemorySign, MemorySigns
from modelcache_agent.tiers.host.cgroups import find_limit
from modelcache_agent.tiers.host.facts import read_meminfo

_PRESSURE: Final = Path("/proc/pressure/memory")


def read_signs() -> MemorySigns:
    """What is known now. Raises OSError."""
    memory, cgroup = read_meminfo(), find_limit()
    signs = [MemorySign("the node", memory["MemAvailable"], memory["MemTotal"])]
    if cgroup.limit_bytes is not None:
        left = max(0, cgroup.limit_bytes - cgroup.held_bytes)
        signs.append(MemorySign("the agent's memory limit", left, cgroup.limit_bytes))
    return MemorySigns(tuple(signs), _read_stall())


def _read_stall() -> float | None:
    try:
        text = _PRESSURE.read_text()
    except OSError:
        return None
    found = re.search(r"^some avg10=([\d.]+)", text, re.MULTILINE)
    return None if found is None else float(found.group(1))
