"""Which version takes a request. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, Literal

Track = Literal["stable", "canary"]

STABLE: Final = "stable"
CANARY: Final = "canary"
_BYTES: Final = 8
_WHOLE: Final = 100


def make_weights(canary_weight: int | None) -> Mapping[str, int]:
    """Shares of the traffic in percent by track; `canary` is there while there is one."""
    if canary_weight is None:
        return {STABLE: _WHOLE}
    return {STABLE: _WHOLE - canary_weight, CANARY: canary_weight}


def choose_track(key: str | bytes, cache: str, canary_weight: int | None) -> Track:
    """The same key gets the same track at the same weight, in every process and language.

    The first eight bytes of SHA-256 over `<namespace>/<name>`, a zero byte and the key are a
    big-endian fraction; below the weight it is the canary. So a growing weight takes keys from
    stable and gives none back. The name keeps one user from being the canary of all models.
    """
    if not canary_weight:
        return STABLE
    data = key.encode(errors="surrogatepass") if isinstance(key, str) else key
    digest = hashlib.sha256(cache.encode() + b"\0" + data).digest()
    place = int.from_bytes(digest[:_BYTES], "big")
    return CANARY if place * _WHOLE < canary_weight << 8 * _BYTES else STABLE
