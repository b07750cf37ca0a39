"""Where the test bed keeps things: never in the work tree.

MODELCACHE_CACHE_DIR  built programs, shared by all instances (default ~/.cache/modelcache)
MODELCACHE_STATE_DIR  running instances (default ~/.local/state/modelcache)
"""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "MODELCACHE_CACHE_DIR"
STATE_VARIABLE = "MODELCACHE_STATE_DIR"


def _folder(variable: str, xdg_variable: str, fallback: str) -> Path:
    explicit = os.environ.get(variable)
    if explicit:
        return Path(explicit).expanduser().absolute()
    base = os.environ.get(xdg_variable)
    root = Path(base) if base else Path.home() / fallback
    return root.absolute() / "modelcache"


def cache_folder() -> Path:
    """Return the folder of built programs."""
    return _folder(CACHE_VARIABLE, "XDG_CACHE_HOME", ".cache")


def state_folder() -> Path:
    """Return the folder under which instances live."""
    return _folder(STATE_VARIABLE, "XDG_STATE_HOME", ".local/state")


def clusters_folder() -> Path:
    """Return the folder that holds one folder per cluster."""
    return state_folder() / "clusters"


def stores_folder() -> Path:
    """Return the folder that holds one folder per object store."""
    return state_folder() / "stores"


def modules_folder() -> Path:
    """Return the folder of the pinned Go modules, part of the source tree."""
    return Path(__file__).resolve().parent.parent / "go"
