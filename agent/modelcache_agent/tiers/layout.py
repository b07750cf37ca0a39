"""The folders and names of a store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FORMAT: Final = 1
DIRECTORY_MODE: Final = 0o755
PUBLISHED_MODE: Final = 0o444
PARTIAL_MODE: Final = 0o600
NEW_TREE_PREFIX: Final = ".new-"
# A file system's own folder at its top; the store may be a mount point.
TOLERATED: Final = frozenset({"lost+found"})

# Of the test whether file leases work here.
_PROBE: Final = re.compile(r"use-probe-[0-9]+")
_ROOT_FILES: Final = frozenset(
    {"store.json", "evicted.json", "scrub.json", "history.json", "decisions.json", "host.json"}
)
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_BLOB: Final = re.compile(r"([0-9a-f]{64})(?:\.[1-9][0-9]{0,4})?")
_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Paths below one root, all on one file system, because hard links cross no mount."""

    root: Path

    @property
    def lock(self) -> Path:
        """Held by flock for the agent's life; never unlinked."""
        return self.root / "lock"

    @property
    def about(self) -> Path:
        """Format and node of the store."""
        return self.root / "store.json"

    @property
    def evicted(self) -> Path:
        """Which ModelVersions were evicted and are not to be fetched again."""
        return self.root / "evicted.json"

    @property
    def scrub(self) -> Path:
        """When each file was last read again, and what was found damaged."""
        return self.root / "scrub.json"

    @property
    def history(self) -> Path:
        """How often pods attached each content, and how long its transfers took."""
        return self.root / "history.json"

    @property
    def decisions(self) -> Path:
        """The last decisions, with their reasons."""
        return self.root / "decisions.json"

    @property
    def inputs(self) -> Path:
        """The input log, if one is written."""
        return self.root / "inputs"

    @property
    def host(self) -> Path:
        """Which contents were locked in memory."""
        return self.root / "host.json"

    @property
    def blobs(self) -> Path:
        """One file for each distinct content of a file."""
        return self.root / "blobs" / "sha256"

    @property
    def partial(self) -> Path:
        """Unfinished transfers, one folder for each ModelVersion."""
        return self.root / "partial"

    @property
    def versions(self) -> Path:
        """What readers see: trees of hard links, complete or not there."""
        return self.root / "versions"

    @property
    def records(self) -> Path:
        """What was verified, one file for each version. Its mtime is the time of last use."""
        return self.root / "records"

    @property
    def released(self) -> Path:
        """Given up, but still open somewhere."""
        return self.root / "released"

    @property
    def quarantine(self) -> Path:
        """What is not ours or is damaged; never trusted."""
        return self.root / "quarantine"

    @property
    def pods(self) -> Path:
        """What pods mount: pods/<pod's UID>/<volume>. The CSI process adds and removes folders."""
        return self.root / "pods"

    @property
    def adopt(self) -> Path:
        """Local trees that were handed over, one folder for each ModelVersion's uid."""
        return self.root / "adopt"

    @property
    def adopt_lock(self) -> Path:
        """Held by the program that hands over; never unlinked."""
        return self.adopt / "lock"

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders, parents first."""
        return (
            self.root / "blobs",
            self.blobs,
            self.partial,
            self.versions,
            self.records,
            self.released,
            self.quarantine,
            self.pods,
            self.adopt,
            self.inputs,
        )

    @property
    def known_names(self) -> frozenset[str]:
        """What belongs directly below the root."""
        files = {path.name for path in (self.lock, self.about, self.evicted, self.scrub)}
        files |= {self.history.name, self.decisions.name, self.host.name}
        return frozenset(files | {path.name for path in self.folders} | TOLERATED) - {"sha256"}

    def version(self, hex_digest: str) -> Path:
        """The tree of a published version."""
        return self.versions / hex_digest

    def new_tree(self, hex_digest: str) -> Path:
        """The tree while it is being built."""
        return self.versions / f"{NEW_TREE_PREFIX}{hex_digest}"

    def record(self, hex_digest: str) -> Path:
        """The record of a version."""
        return self.records / f"{hex_digest}.json"


def may_be_root_file(name: str) -> bool:
    """True for the names of files that are written directly below the root."""
    return name in _ROOT_FILES or _PROBE.fullmatch(name) is not None


def may_be_record(name: str) -> bool:
    """True if a record may have this file name."""
    return name.endswith(".json") and is_hex_digest(name.removesuffix(".json"))


def may_be_blob(name: str) -> bool:
    """True if a blob may have this file name."""
    return parse_blob_name(name) is not None


def is_new_tree(name: str) -> bool:
    """True for the name of a tree that is being built."""
    hex_digest = name.removeprefix(NEW_TREE_PREFIX)
    return hex_digest != name and is_hex_digest(hex_digest)


def is_hex_digest(name: str) -> bool:
    """True if the name is a sha256 in hex."""
    return _HEX.fullmatch(name) is not None


def parse_blob_name(name: str) -> str | None:
    """The sha256 that a blob's file name stands for, or None. `<hex>.1` is a second copy."""
    match = _BLOB.fullmatch(name)
    return None if match is None else match.group(1)


def is_uid(name: str) -> bool:
    """True if the name may be a ModelVersion's uid, so that it is safe as a folder's name."""
    return _UID.fullmatch(name) is not None
