"""Which of the versions that are here takes a request. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from modelcache.choice import STABLE, Track
from modelcache_api.names import VOLUME_MODEL_FOLDER
from modelcache_api.volume_progress import ShownVersion, VolumeProgress


@dataclass(frozen=True, slots=True)
class Pick:
    """A version. `is_fallback`: the one that the key goes to by its weight is not here."""

    version: ShownVersion
    is_fallback: bool


def list_shown(progress: VolumeProgress) -> tuple[ShownVersion, ...]:
    """What the volume shows, its own version first. Older agents tell of that one alone."""
    if progress.versions:
        return progress.versions
    own = ShownVersion(
        name="",
        uid=progress.version_uid,
        digest=progress.content_digest,
        folder=VOLUME_MODEL_FOLDER,
        track=STABLE,
        size_bytes=progress.size_bytes,
    )
    return (own,)


def pick(
    shown: Sequence[ShownVersion],
    track: Track,
    among: Collection[str] | None = None,
    kept: Sequence[ShownVersion] = (),
) -> Pick:
    """The version of the track, else stable, else the volume's own, else any.

    Only versions `among` these names are taken, if there are any of them: a process names those
    that it has loaded. `kept` are versions that it holds on to although the volume shows them no
    more. What is about to leave takes a request only where nothing else can.
    """
    every = sorted((*shown, *kept), key=lambda one: one.is_leaving)
    usable = [one for one in every if among is None or one.name in among] or every
    for wanted in dict.fromkeys((track, STABLE)):
        found = next((one for one in usable if one.track == wanted), None)
        if found is not None:
            return Pick(found, is_fallback=wanted != track)
    return Pick(shown[0] if shown[0] in usable else usable[0], is_fallback=True)
