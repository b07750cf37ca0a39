"""The folder that a model is brought into.

<target>/model                  the model: complete, or not there at all
<target>/.modelcache/store      a store like a node's, with the same bytes by hard links
<target>/.modelcache/building   a tree that is not complete yet, and the one that it follows
<target>/.modelcache/got.json   what was asked for last, and which content it was
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from modelcache_agent.tiers.catalog import StoredVersion
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.durable import (
    allocated_bytes,
    remove_anything,
    sync_directory,
    write_atomically,
)
from modelcache_agent.tiers.errors import StoreRefusedError
from modelcache_agent.tiers.layout import DIRECTORY_MODE
from modelcache_agent.tiers.recovery import OpenStore, open_store
from modelcache_agent.tiers.rehash import hash_version, settle
from modelcache_agent.tiers.trees import build_tree, describe_tree_fault
from modelcache_api.manifest import ContentDigest
from modelcache_api.names import VOLUME_MODEL_FOLDER

_HIDDEN: Final = ".modelcache"
_MODEL: Final = VOLUME_MODEL_FOLDER
# A store names its node; this one goes with its volume.
_NO_NODE: Final = "none"


class Target:
    """One folder, with its lock held until `close`. All methods block; one thread calls them."""

    def __init__(self, root: Path) -> None:
        """Open the folder and repair what a crash left.

        Raises:
            StoreInUseError: another process fills the same folder now.
            StoreRefusedError: it holds something that is not ours.
            OSError: it cannot be written.
        """
        self._root = root
        self._hidden = root / _HIDDEN
        self.model = root / _MODEL
        self._refuse_foreign_model()
        store_folder = self._hidden / "store"
        store_folder.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        self._opened: OpenStore = open_store(store_folder, node_uid=_NO_NODE)
        self.store: DiskStore = self._opened.store

    def close(self) -> None:
        """Let others fill the folder."""
        self._opened.close()

    def look_again(self, stored: StoredVersion, should_stop: Callable[[], bool]) -> bool:
        """Hash a content that does not look as recorded; False: its bytes are not (all) there.

        Raises:
            StoreError, OSError: it could not be judged.
        """
        hashed = hash_version(self.store, stored, should_stop)
        return hashed is not None and settle(self.store, hashed) is True

    def show(self, digest: ContentDigest, asked: str) -> None:
        """Make `model` this content and nothing else; what the folder held before goes.

        May be repeated after a kill, and does nothing where all is done.

        Raises:
            StoreError, OSError: the disk refuses.
        """
        stored = self.store.catalog.get(digest)
        if stored is None:
            raise StoreRefusedError(f"{digest} is not in the target any more: run get again")
        if describe_tree_fault(self.model, stored.files) is not None:
            self._swap_in(stored)
        # Also what a kill after the last rename has left.
        remove_anything(self._building)
        note = {"asked": asked, "contentDigest": digest}
        if self._read_note() != note:
            write_atomically(self._note, json.dumps(note).encode())
        self._drop_all_but(stored)

    def find_shown(self, asked: str) -> StoredVersion | None:
        """What `model` shows, if that was asked for in these words and looks as it was verified."""
        note = self._read_note()
        if note.get("asked") != asked:
            return None
        stored = self.store.catalog.get(ContentDigest(str(note.get("contentDigest"))))
        if stored is None or not stored.is_verified:
            return None
        return None if describe_tree_fault(self.model, stored.files) else stored

    def room(self, uid: str) -> tuple[int, int]:
        """Bytes that are there of this version's transfer, and bytes that are free."""
        found = os.statvfs(self._root)
        there = allocated_bytes(self.store.layout.partial / uid)
        return there, found.f_bavail * found.f_frsize

    def _refuse_foreign_model(self) -> None:
        if self.model.exists() and not self._hidden.exists():
            raise StoreRefusedError(
                f"{self.model} is there and is not of `get`: remove it, or give another --to"
            )

    def _swap_in(self, stored: StoredVersion) -> None:
        building = self._building
        remove_anything(building)
        building.mkdir(mode=DIRECTORY_MODE)
        build_tree(building / _MODEL, stored.files, self.store.blobs)
        if self.model.exists():
            self.model.rename(building / "before")
        (building / _MODEL).rename(self.model)
        sync_directory(self._root)

    def _drop_all_but(self, stored: StoredVersion) -> None:
        for other in list(self.store.catalog):
            if other.digest != stored.digest:
                self.store.remove(other.digest)
        for folder in list(self.store.layout.partial.iterdir()):
            self.store.drop_partial(folder.name)

    @property
    def _building(self) -> Path:
        return self._hidden / "building"

    @property
    def _note(self) -> Path:
        return self._hidden / "got.json"

    def _read_note(self) -> dict[str, object]:
        with suppress(OSError, ValueError):
            found = json.loads(self._note.read_bytes())
            if isinstance(found, dict):
                return found
        return {}
