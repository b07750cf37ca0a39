"""When each published file was last read in whole, and what was found damaged: scrub.json.

Times of the running process are monotonic; on disk they are Unix seconds. A damaged book counts
as empty: files then are as old as the records of their versions say.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from modelcache_agent.decide.scrub import Checkup, Damage, Stage, age_of
from modelcache_agent.tiers.catalog import Catalog
from modelcache_agent.tiers.durable import write_atomically
from modelcache_agent.tiers.layout import parse_blob_name

_log = logging.getLogger(__name__)
# Progress is written down at most this often: what a kill costs is read once more.
_SAVE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Cursor:
    """How many pieces of a file were read and found right, while it was this very file."""

    blob: str
    inode: int
    mtime_ns: int
    pieces: int


def read_monotonic() -> float:
    """Seconds that never go back, and go on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ScrubBook:
    """One thread uses it. What cannot be written now is written later, and still holds here."""

    def __init__(
        self, path: Path, wall: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._path = path
        self._wall = wall
        self._monotonic = monotonic
        self._checked: dict[str, float] = {}
        self._repairs: dict[str, int] = {}
        self._damaged: dict[str, Damage] = {}
        self._saved_at = monotonic()
        self.cursor: Cursor | None = None

    @property
    def damaged(self) -> Mapping[str, Damage]:
        """Damage by the file's name."""
        return self._damaged

    def load(self) -> None:
        """Read what an earlier process wrote."""
        try:
            document = json.loads(self._path.read_bytes())
            checked = {_blob(name): float(at) for name, at in document["checked"].items()}
            self._repairs = {_blob(name): int(n) for name, n in document["repairs"].items()}
            damaged = [self._parse_damage(row) for row in document["damaged"]]
            self._damaged = {damage.blob: damage for damage in damaged}
            row = document["cursor"]
            self.cursor = None if row is None else Cursor(**row)
        except FileNotFoundError:
            return
        except (ValueError, TypeError, KeyError, AttributeError):
            self._repairs, self._damaged, self.cursor = {}, {}, None
            _log.warning("the book of checks is damaged and was dropped: files are checked anew")
            return
        for name, at in checked.items():
            self._remember(name, at)

    def list_checkups(self, catalog: Catalog) -> tuple[Checkup, ...]:
        """All published files with their ages; what is not published any more is forgotten.

        So is damage that no version has any more, because all of them were hashed again.
        """
        names = catalog.blob_names
        carried = {damage.blob for version in catalog for damage in version.damage}
        for version in catalog:
            for name in version.blob_names - self._checked.keys():
                self._remember(name, version.verified_at)
        for book in (self._checked, self._repairs):
            for name in book.keys() - names:
                del book[name]
        self._damaged = {name: self._damaged[name] for name in self._damaged.keys() & carried}
        now = self._monotonic()
        return tuple(
            Checkup(name, now - self._checked[name], name in self._repairs)
            for name in sorted(names)
        )

    def note_sound(self, blob: str) -> None:
        """All of the file was read now, and is right."""
        self._checked[blob] = self._monotonic()
        self._repairs.pop(blob, None)
        self._damaged.pop(blob, None)
        self.cursor = None
        self.save(is_urgent=False)

    def note_progress(self, cursor: Cursor) -> None:
        """So many pieces of the file were read."""
        self.cursor = cursor
        self.save(is_urgent=False)

    def note_damage(self, damage: Damage) -> Damage:
        """Write it down, durably if the disk can; returns it with its history."""
        known = self._damaged.get(damage.blob)
        since = self._monotonic() if known is None else known.since
        noted = replace(damage, repairs=self._repairs.get(damage.blob, 0), since=since)
        self._damaged[damage.blob] = noted
        self.cursor = None
        self.save(is_urgent=True)
        return noted

    def note_repaired(self, blobs: Iterable[str]) -> None:
        """These files were fetched again; they count as unproved until they are read back."""
        for blob in blobs:
            damage = self._damaged.pop(blob, None)
            if damage is not None:
                self._repairs[blob] = damage.repairs + 1
        self.save(is_urgent=True)

    def save(self, *, is_urgent: bool) -> None:
        """Write the book, unless that was done a moment ago and is not urgent."""
        now = self._monotonic()
        if not is_urgent and now - self._saved_at < _SAVE_SECONDS:
            return
        offset = self._wall() - now
        document = {
            "checked": {name: at + offset for name, at in self._checked.items()},
            "repairs": self._repairs,
            "damaged": [_encode_damage(damage) for damage in self._damaged.values()],
            "cursor": None if self.cursor is None else asdict(self.cursor),
        }
        self._saved_at = now
        # A disk that cannot write any more still has to be checked, and its damage told.
        with suppress(OSError):
            write_atomically(self._path, json.dumps(document, separators=(",", ":")).encode())

    def _remember(self, name: str, checked_at: float) -> None:
        age, is_ahead = age_of(checked_at, self._wall())
        if is_ahead:
            _log.warning("the blob %s was checked in the future: taken for now", name[:16])
        self._checked[name] = self._monotonic() - age

    def _parse_damage(self, row: dict[str, Any]) -> Damage:
        return Damage(
            blob=_blob(row["blob"]),
            path=str(row["path"]),
            size_bytes=int(row["size_bytes"]),
            inode=int(row["inode"]),
            mtime_ns=int(row["mtime_ns"]),
            pieces=tuple(int(piece) for piece in row["pieces"]),
            stage=Stage(row["stage"]),
            repairs=self._repairs.get(row["blob"], 0),
            since=self._monotonic(),
        )


def _blob(name: str) -> str:
    if parse_blob_name(name) is None:
        raise ValueError("it names what is not a blob")
    return name


def _encode_damage(damage: Damage) -> dict[str, Any]:
    row = asdict(damage)
    del row["since"], row["repairs"]
    return row
