"""status.json: what a pod can read about its own volume. Written by the agent.

The volume's socket pushes the same document whenever it changes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from modelcache_api.names import VolumeState
from modelcache_api.quantities import format_bytes

MAX_PROGRESS_BYTES: Final = 64 * 1024
"""Readers read no more of the file than this."""
_BAR: Final = 20
_MINUTE: Final = 60


@dataclass(frozen=True, slots=True)
class VolumeProgress:
    """`size_bytes` is 0 while it is not known; `reason` is one CamelCase word.

    `version_uid` and `content_digest` name what the volume shows, empty before it does.
    `canary_weight` is the canary's share of the traffic in percent, None while there is none.
    """

    cache: str
    state: VolumeState
    reason: str
    message: str = ""
    percent: int = 0
    size_bytes: int = 0
    version_uid: str = ""
    content_digest: str = ""
    canary_weight: int | None = None


def encode_progress(progress: VolumeProgress) -> bytes:
    """The document; one line, because people read it with cat."""
    return json.dumps(progress_document(progress)).encode() + b"\n"


def progress_document(progress: VolumeProgress) -> dict[str, Any]:
    """The document's fields."""
    return {
        "cache": progress.cache,
        "state": progress.state,
        "reason": progress.reason,
        "message": progress.message,
        "percent": progress.percent,
        "sizeBytes": progress.size_bytes,
        "versionUid": progress.version_uid,
        "contentDigest": progress.content_digest,
        "canaryWeight": progress.canary_weight,
    }


def decode_progress(document: bytes) -> VolumeProgress | None:
    """What the document says; None if nobody can make sense of it."""
    try:
        return read_progress(json.loads(document))
    except (ValueError, RecursionError):
        return None


def read_progress(fields: Any) -> VolumeProgress | None:
    """What the fields say; None if nobody can make sense of them. Older agents write fewer."""
    try:
        return VolumeProgress(
            cache=str(fields["cache"]),
            state=VolumeState(fields["state"]),
            reason=str(fields["reason"]),
            message=str(fields["message"]),
            percent=int(fields["percent"]),
            size_bytes=int(fields["sizeBytes"]),
            version_uid=str(fields.get("versionUid", "")),
            content_digest=str(fields.get("contentDigest", "")),
            canary_weight=_percent(fields.get("canaryWeight")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _percent(value: Any) -> int | None:
    return None if value is None else max(0, min(100, int(value)))


def describe_progress(progress: VolumeProgress) -> str:
    """One line: what is going on, how far it is, or what it waits for."""
    if progress.state is VolumeState.DOWNLOADING:
        done = _BAR * progress.percent // 100
        bar = "#" * done + "." * (_BAR - done)
        share = progress.size_bytes * progress.percent // 100
        amount = f"{format_bytes(share)} of {format_bytes(progress.size_bytes)}"
        return f"{progress.cache} downloading [{bar}] {progress.percent:3d}%  {amount}"
    reason = f" ({progress.reason})" if progress.reason != progress.state else ""
    message = f": {progress.message}" if progress.message else ""
    return f"{progress.cache} {progress.state.lower()}{reason}{message}"


def format_progress_line(seconds: float, text: str) -> str:
    """One line of a log, with the seconds since it began; hostile text cannot break out of it."""
    minutes, rest = divmod(int(seconds), _MINUTE)
    safe = "".join(letter if letter.isprintable() else "?" for letter in text)
    return f"{f'{minutes}m{rest:02d}s' if minutes else f'{rest}s':>7}  {safe}"
