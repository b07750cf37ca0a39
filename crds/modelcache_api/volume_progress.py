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
class ShownVersion:
    """A version whose files lie in the volume, below `folder`.

    `name` is its ModelVersion's, empty where the agent does not know it. `track` is its part in the
    ModelCache now, empty once it has left the spec. `is_leaving`: its folder goes as soon as no
    process uses it.
    """

    name: str
    uid: str
    digest: str
    folder: str
    track: str = ""
    size_bytes: int = 0
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class VolumeProgress:
    """`size_bytes` is 0 while it is not known; `reason` is one CamelCase word.

    `version_uid` and `content_digest` name what the volume shows, empty before it does.
    `canary_weight` is the canary's share of the traffic in percent, None while there is none.
    `versions` are all whose files are there, the volume's own first. `is_draining`: the pod takes
    no new work; said on the socket alone.
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
    versions: tuple[ShownVersion, ...] = ()
    is_draining: bool = False


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
        "versions": [_version_document(version) for version in progress.versions],
        "isDraining": progress.is_draining,
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
            versions=tuple(_read_version(one) for one in fields.get("versions", ())),
            is_draining=bool(fields.get("isDraining", False)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _version_document(version: ShownVersion) -> dict[str, Any]:
    return {
        "name": version.name,
        "uid": version.uid,
        "digest": version.digest,
        "folder": version.folder,
        "track": version.track,
        "sizeBytes": version.size_bytes,
        "isLeaving": version.is_leaving,
    }


def _read_version(fields: Any) -> ShownVersion:
    return ShownVersion(
        name=str(fields["name"]),
        uid=str(fields["uid"]),
        digest=str(fields["digest"]),
        folder=str(fields["folder"]),
        track=str(fields["track"]),
        size_bytes=int(fields["sizeBytes"]),
        is_leaving=bool(fields["isLeaving"]),
    )


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
