"""status.json: what a pod can read about its own volume. Written by the agent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from modelcache_api.names import VolumeState

MAX_PROGRESS_BYTES: Final = 64 * 1024
"""Readers read no more of the file than this."""


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


def decode_progress(document: bytes) -> VolumeProgress | None:
    """What the document says; None if nobody can make sense of it."""
    try:
        fields = json.loads(document)
        return VolumeProgress(
            cache=str(fields["cache"]),
            state=VolumeState(fields["state"]),
            reason=str(fields["reason"]),
            message=str(fields["message"]),
            percent=int(fields["percent"]),
            size_bytes=int(fields["sizeBytes"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
