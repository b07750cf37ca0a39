"""Opening a store: take the lock, repair what a crash left, adopt what is complete.

Needs no network. What looks exactly as recorded is adopted without reading it; the rest is held
as unverified until it was hashed; what is not ours goes to quarantine; leftovers of our own
interrupted steps are removed. Nothing outside the root is touched.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from modelcache_agent.tiers.ageing import make_ageing_clock
from modelcache_agent.tiers.blobs import looks_as_recorded
from modelcache_agent.tiers.catalog import StoredVersion
from modelcache_agent.tiers.damage import find_known_damage, mend_others
from modelcache_agent.tiers.disk import DiskStore, Step
from modelcache_agent.tiers.durable import (
    is_temporary,
    remove_anything,
    write_atomically,
)
from modelcache_agent.tiers.errors import StoreRefusedError
from modelcache_agent.tiers.layout import (
    DIRECTORY_MODE,
    FORMAT,
    NEW_TREE_PREFIX,
    PARTIAL_MODE,
    TOLERATED,
    StoreLayout,
    is_new_tree,
    is_uid,
    may_be_blob,
    may_be_record,
    may_be_root_file,
    parse_blob_name,
)
from modelcache_agent.tiers.lock import StoreLock
from modelcache_agent.tiers.records import VersionRecord, decode_record
from modelcache_agent.tiers.scrub_book import read_monotonic
from modelcache_api.manifest import digest_hex

_log = logging.getLogger(__name__)
# A wall clock that is corrected bit by bit is no clock that was wrong.
_SLEW_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store and the lock that must be held as long as it is used."""

    store: DiskStore
    lock: StoreLock

    def close(self) -> None:
        """Let another agent use it."""
        self.lock.close()


def open_store(
    root: Path,
    *,
    node_uid: str,
    step: Step = lambda _name: None,
    clock: Callable[[], float] | None = None,
    monotonic: Callable[[], float] = read_monotonic,
) -> OpenStore:
    """The store below `root`, which must exist. `clock` tells Unix time.

    Raises:
        StoreRefusedError: another agent uses it, it has another format, or it is no store.
    """
    layout = StoreLayout(root)
    _refuse_foreign_folder(layout)
    lock = StoreLock(layout.lock)
    lock.acquire()
    try:
        _check_about(layout, node_uid)
        for folder in layout.folders:
            folder.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        clock = clock or make_ageing_clock()
        store = DiskStore(layout, step=step, clock=clock, monotonic=monotonic)
        _Repair(store).run()
    except BaseException:
        lock.close()
        raise
    return OpenStore(store, lock)


def _refuse_foreign_folder(layout: StoreLayout) -> None:
    """A folder with other people's files is refused before anything is written to it."""
    if layout.about.exists():
        return
    foreign = sorted(
        path.name
        for path in layout.root.iterdir()
        if path.name not in TOLERATED | {layout.lock.name}
        and not is_temporary(path, may_be_root_file)
    )
    if foreign:
        raise StoreRefusedError(
            f"{layout.root} is not empty and not a store (it holds {foreign[0]!r}): "
            "give --store an empty folder"
        )


def _check_about(layout: StoreLayout, node_uid: str) -> None:
    try:
        about = json.loads(layout.about.read_bytes())
        found_format, found_uid = about["format"], about["nodeUid"]
    except FileNotFoundError:
        found_format, found_uid = FORMAT, None
    except (ValueError, KeyError, TypeError):
        raise StoreRefusedError(
            f"{layout.about} is damaged: remove it to rebuild the store from its records"
        ) from None
    if found_format != FORMAT:
        raise StoreRefusedError(
            f"{layout.root} has format {found_format!r}, this agent knows {FORMAT}: "
            "empty the folder or use the matching agent"
        )
    if found_uid is not None and found_uid != node_uid:
        _log.warning("the node was rebuilt: contents stay, they are known by their digests")
    if found_uid != node_uid:
        about = {"format": FORMAT, "nodeUid": node_uid}
        write_atomically(layout.about, json.dumps(about).encode())


class _Repair:
    """One pass over the store at start."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store
        self._layout = store.layout
        self._quarantine = store.quarantine

    def run(self) -> None:
        self._sweep_root()
        self._store.scrub_book.load()
        self._store.history.load()
        self._store.decisions.load()
        for record in self._read_records():
            self._adopt(record)
        self._sweep_versions()
        self._sweep_blobs()
        mend_others(self._store)
        self._store.released.reap()
        self._sweep_partials()
        self._sweep_adopted()
        self._store.marks.load()

    def _sweep_root(self) -> None:
        for path in self._layout.root.iterdir():
            if is_temporary(path, may_be_root_file):
                path.unlink()
            elif path.name not in self._layout.known_names:
                self._quarantine.take(path, "it does not belong into the store")
        for path in (self._layout.root / "blobs").iterdir():
            if path != self._layout.blobs:
                self._quarantine.take(path, "it does not belong into the store")

    def _read_records(self) -> list[VersionRecord]:
        records = []
        for path in sorted(self._layout.records.iterdir()):
            if is_temporary(path, may_be_record):
                path.unlink()
                continue
            hex_digest = path.name.removesuffix(".json")
            try:
                if not may_be_record(path.name) or not _is_plain_file(path):
                    raise ValueError("it is not a record")  # noqa: TRY301 - one path for all
                records.append(decode_record(path.read_bytes(), f"sha256:{hex_digest}"))
            except (OSError, ValueError) as error:
                self._quarantine.take(path, str(error))
        return records

    def _adopt(self, record: VersionRecord) -> None:
        """A recorded version becomes held: verified if everything looks as recorded."""
        store = self._store
        damage = find_known_damage(store, record.files)
        damaged = {found.blob for found in damage}
        is_intact = all(
            looks_as_recorded(store.blobs.path(file), file)
            for file in record.files
            if file.blob not in damaged
        )
        last_used = self._layout.record(digest_hex(record.digest)).stat().st_mtime
        stored = StoredVersion.of(record, last_used=last_used, is_verified=is_intact and not damage)
        store.catalog.put(replace(stored, damage=damage) if is_intact else stored)
        store.history.note_held(record.digest, record.verified_at)
        if last_used > store.now() + _SLEW_SECONDS:
            _log.warning("version=%s was used in the future: that counts as now", record.digest)
            store.note_use(record.digest)
        if is_intact and damage:
            _log.warning("version=%s has damage that is known: %s", record.digest, damaged)
        elif is_intact:
            store.restore(record.digest, stored.files)
        else:
            _log.warning("version=%s does not look as recorded: hashing it", record.digest)

    def _sweep_versions(self) -> None:
        known = {digest_hex(version.digest) for version in self._store.catalog}
        for path in self._layout.versions.iterdir():
            if is_new_tree(path.name) and path.is_dir() and not path.is_symlink():
                remove_anything(path)
            elif path.name not in known:
                self._quarantine.take(path, "there is no record of it")

    def _sweep_blobs(self) -> None:
        """Blobs that no record names come from an interrupted publication or withdrawal."""
        known = self._store.catalog.blob_names
        for path in self._layout.blobs.iterdir():
            if is_temporary(path, may_be_blob):
                path.unlink()
            elif parse_blob_name(path.name) is None or not _is_plain_file(path):
                self._quarantine.take(path, "it is not a blob")
            elif path.name not in known:
                self._store.released.take(path)

    def _sweep_partials(self) -> None:
        """Partial files can be resumed, unless a published blob is the same inode.

        That is left of a publication that was interrupted after its end; writing to such a file
        would change what readers see. Others may have been made read-only before the end.
        """
        for folder in self._layout.partial.iterdir():
            if not is_uid(folder.name) or not folder.is_dir() or folder.is_symlink():
                self._quarantine.take(folder, "it is not a transfer")
                continue
            for path in folder.iterdir():
                if _is_plain_file(path) and path.lstat().st_nlink > 1:
                    path.unlink()
                elif _is_plain_file(path):
                    path.chmod(PARTIAL_MODE)

    def _sweep_adopted(self) -> None:
        """What is being staged is left alone: its program may run, and the next one removes it."""
        for path in self._layout.adopt.iterdir():
            name = path.name.removeprefix(NEW_TREE_PREFIX)
            is_staged = is_uid(name) and path.is_dir() and not path.is_symlink()
            if not is_staged and path != self._layout.adopt_lock:
                self._quarantine.take(path, "it is not an adopted tree")


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
