"""Showing a content in a pod's volume: two trees of hard links, each complete or not there."""

from __future__ import annotations

from typing import Final

from modelcache_agent.decide.hub_layout import HubLayout
from modelcache_agent.decide.volumes import Filling
from modelcache_agent.tiers.blobs import BlobFolder
from modelcache_agent.tiers.catalog import StoredVersion
from modelcache_agent.tiers.disk import Step
from modelcache_agent.tiers.durable import remove_anything, sync_directory, write_atomically
from modelcache_agent.tiers.layout import DIRECTORY_MODE
from modelcache_agent.tiers.trees import build_tree
from modelcache_agent.volume.folders import READABLE_MODE, VolumeFolder
from modelcache_agent.volume.records import Binding, encode

_MAIN: Final = "main"


def fill(
    folder: VolumeFolder,
    filling: Filling,
    stored: StoredVersion,
    blobs: BlobFolder,
    step: Step = lambda _name: None,
) -> None:
    """Bind the volume to the content, durably, and show it. May be repeated after a kill.

    `model` comes last: who sees it sees everything. `step` is called as in the store.

    Raises:
        FileNotFoundError: the volume is gone, which nobody needs to hear.
        OSError: the disk refuses.
    """
    step("bind")
    write_atomically(folder.bound, encode(Binding(filling.uid, filling.digest, filling.name)))
    remove_anything(folder.building)
    folder.building.mkdir(mode=DIRECTORY_MODE)
    if folder.hub.exists():
        # Left by an attempt that ended between the two, perhaps for another content.
        folder.hub.rename(folder.building / "old")
    if filling.hub is not None:
        step("hub")
        _build_hub(folder, filling.hub, stored, blobs)
        (folder.building / "hub").rename(folder.hub)
    step("model")
    build_tree(folder.building / "model", stored.files, blobs)
    step("show")
    (folder.building / "model").rename(folder.model)
    step("shown")
    sync_directory(folder.content)
    remove_anything(folder.building)


def _build_hub(
    folder: VolumeFolder, layout: HubLayout, stored: StoredVersion, blobs: BlobFolder
) -> None:
    repository = folder.building / "hub" / layout.folder
    for path in (repository.parent, repository, repository / "refs", repository / "snapshots"):
        path.mkdir(mode=DIRECTORY_MODE)
    main = repository / "refs" / _MAIN
    # The libraries take the whole file for the name, line ends included.
    main.write_text(layout.revision, encoding="ascii")
    main.chmod(READABLE_MODE)
    build_tree(repository / "snapshots" / layout.revision, stored.files, blobs)
