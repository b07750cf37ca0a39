"""status.json: what a pod can read about its own volume."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelcache_api.names import VolumeState

_MOST_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class VolumeProgress:
    """`size_bytes` is 0 while it is not known; `reason` is one CamelCase word."""

    cache: str
    state: VolumeState
    reason: str
    message: str = ""
    percent: int = 0
    size_bytes: int = 0


def encode_progress(progress: VolumeProgress) -> bytes:
    """The document; one line, because people read it with cat."""
    document = {
        "cache": progress.cache,
        "state": progress.state,
        "reason": progress.reason,
        "message": progress.message,
        "percent": progress.percent,
        "sizeBytes": progress.size_bytes,
    }
    return json.dumps(document).encode() + b"\n"


def read_progress(path: Path) -> VolumeProgress | None:
    """What the file says; None if it is not there or nobody can make sense of it."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_MOST_BYTES))
        return VolumeProgress(
            cache=str(document["cache"]),
            state=VolumeState(document["state"]),
            reason=str(document["reason"]),
            message=str(document["message"]),
            percent=int(document["percent"]),
            size_bytes=int(document["sizeBytes"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
