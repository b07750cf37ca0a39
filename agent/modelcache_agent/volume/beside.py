"""Further versions in a pod's volume: `content/versions/<name>`, each whole or not there.

The volume's record tells which version lies under which name; it is written before a folder gets
its name, so that no folder is unknown. What it tells of and is not there means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from modelcache_agent.decide.beside import Beside
from modelcache_agent.tiers.blobs import BlobFolder
from modelcache_agent.tiers.catalog import StoredVersion
from modelcache_agent.tiers.disk import Step
from modelcache_agent.tiers.durable import remove_anything, sync_directory, write_atomically
from modelcache_agent.tiers.layout import DIRECTORY_MODE
from modelcache_agent.tiers.trees import build_tree
from modelcache_agent.volume.folders import VolumeFolder
from modelcache_agent.volume.records import encode_beside, read_beside


def look_beside(folder: VolumeFolder) -> tuple[Beside, ...]:
    """The further versions that are there. Raises ValueError if the record is damaged."""
    return tuple(one for one in read_beside(folder.beside) if folder.version(one.name).is_dir())


def show_beside(
    folder: VolumeFolder,
    present: Sequence[Beside],
    one: Beside,
    stored: StoredVersion,
    blobs: BlobFolder,
    step: Step = lambda _name: None,
) -> None:
    """Show one more beside those that are `present`. May be repeated after a kill.

    Raises:
        FileNotFoundError: the volume is gone, which nobody needs to hear.
        OSError: the disk refuses.
    """
    step("record")
    write_atomically(folder.beside, encode_beside((*present, one)))
    remove_anything(folder.building)
    folder.building.mkdir(mode=DIRECTORY_MODE)
    step("build")
    build_tree(folder.building / "version", stored.files, blobs)
    folder.versions.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    _move_away(folder, one.name)
    step("show")
    (folder.building / "version").rename(folder.version(one.name))
    step("shown")
    sync_directory(folder.versions)
    sync_directory(folder.content)
    remove_anything(folder.building)


def hide_beside(
    folder: VolumeFolder,
    present: Sequence[Beside],
    one: Beside,
    step: Step = lambda _name: None,
) -> None:
    """Take one away from those that are `present`; who has its files open keeps them.

    Raises:
        OSError: as above.
    """
    remove_anything(folder.building)
    folder.building.mkdir(mode=DIRECTORY_MODE)
    step("hide")
    _move_away(folder, one.name)
    step("hidden")
    write_atomically(folder.beside, encode_beside([other for other in present if other != one]))
    # Unless there are others.
    with suppress(OSError):
        folder.versions.rmdir()
    sync_directory(folder.content)
    remove_anything(folder.building)


def _move_away(folder: VolumeFolder, name: str) -> None:
    with suppress(FileNotFoundError):
        folder.version(name).rename(folder.building / "old")
