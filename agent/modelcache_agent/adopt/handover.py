"""adopt/<uid>: a tree that the adopting program has staged and the agent takes.

It gets its name by one rename when it is complete. The agent makes its files partial files of the
version's transfer and names their pieces in the journals, so the engine proves each piece by its
hash, as after a restart, and fetches only what is missing or wrong.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from modelcache_agent.adopt.copying import take_copy
from modelcache_agent.adopt.tree import AdoptError, TreeFile
from modelcache_agent.decide.transfer_plan import count_pieces
from modelcache_agent.fetch.journal import Journal, JournalHeader
from modelcache_agent.fetch.partial import JOURNAL_SUFFIX, PARTIAL_SUFFIX, file_stem
from modelcache_agent.tiers.durable import remove_anything, sync_directory, write_atomically
from modelcache_agent.tiers.layout import NEW_TREE_PREFIX, StoreLayout
from modelcache_api.manifest import (
    ContentFile,
    ContentManifest,
    SourceFile,
    make_content_manifest,
    pack_content,
    unpack_content,
)

_log = logging.getLogger(__name__)
_MANIFEST: Final = "manifest"


@contextmanager
def only_adopter(layout: StoreLayout) -> Iterator[None]:
    """One adopting program at a time, so that what a killed one left can be removed.

    Raises:
        AdoptError: another one runs.
    """
    fd = os.open(layout.adopt_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AdoptError("another adoption runs on this store: wait until it has ended") from None
    try:
        yield
    finally:
        os.close(fd)


def stage(layout: StoreLayout, uid: str, files: Iterable[TreeFile]) -> ContentManifest:
    """Copy the files and hand them over; the caller is the only adopter.

    Raises:
        AdoptError, OSError: nothing was handed over, and nothing is left.
    """
    target = layout.adopt / uid
    new = layout.adopt / f"{NEW_TREE_PREFIX}{uid}"
    if target.exists():
        raise AdoptError(f"a tree for {uid} waits already: remove {target} to give another one")
    remove_anything(new)
    new.mkdir(mode=0o700)
    try:
        contents = [take_copy(file, new / file_stem(file.path)) for file in files]
        manifest = make_content_manifest(contents)
        write_atomically(new / _MANIFEST, pack_content(manifest))
        new.rename(target)
    except BaseException:
        remove_anything(new)
        raise
    sync_directory(layout.adopt)
    return manifest


def take_staged(
    layout: StoreLayout, uid: str, source_digest: str, files: Iterable[SourceFile]
) -> int:
    """Make what was staged for this version part of its transfer; returns the number of files.

    No transfer of it may run. May be interrupted anywhere and called again.

    Raises:
        OSError: the disk failed.
    """
    folder = layout.adopt / uid
    if folder.is_symlink() or not folder.is_dir():
        return 0
    try:
        manifest = unpack_content((folder / _MANIFEST).read_bytes())
    except (FileNotFoundError, ValueError) as error:
        _log.warning("uid=%s what was staged for it is not complete: %s", uid, error)
        remove_anything(folder)
        return 0
    known = {content.path: content for content in manifest.files}
    partial = layout.partial / uid
    partial.mkdir(mode=0o700, exist_ok=True)
    taken = 0
    for file in files:
        content, staged = known.get(file.path), folder / file_stem(file.path)
        if content is not None and _is_usable(staged, content, file):
            header = JournalHeader.of(uid, source_digest, file)
            _take_file(staged, partial / staged.name, header, content)
            taken += 1
    remove_anything(folder)
    _log.info("uid=%s files=%d of %d taken from an adopted tree", uid, taken, len(known))
    return taken


def _is_usable(staged: Path, content: ContentFile, file: SourceFile) -> bool:
    try:
        found = staged.lstat()
    except FileNotFoundError:
        return False
    is_own = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
    sizes = {found.st_size, content.size_bytes, file.size_bytes}
    return is_own and len(sizes) == 1 and len(content.pieces) == count_pieces(file.size_bytes)


def _take_file(staged: Path, stem: Path, header: JournalHeader, content: ContentFile) -> None:
    """The journal first: a partial file without one would be thrown away."""
    journal = Journal(stem.with_suffix(JOURNAL_SUFFIX), header)
    try:
        journal.resume({i: bytes.fromhex(piece) for i, piece in enumerate(content.pieces)})
    finally:
        journal.close()
    staged.rename(stem.with_suffix(PARTIAL_SUFFIX))
