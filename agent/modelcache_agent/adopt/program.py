"""`modelcache-agent adopt --help`. Runs where store and tree are both mounted, beside the agent.

It needs neither network nor API server, and never the store's lock: it only hands over. Exit
codes: 0 handed over, 1 not, 143 told to stop.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from modelcache_agent.adopt.handover import only_adopter, stage
from modelcache_agent.adopt.tree import AdoptError, describe, find_tree, list_files
from modelcache_agent.config import (
    ConfigError,
    Option,
    Program,
    parse_path,
    parse_text,
    read_options,
)
from modelcache_agent.tiers.layout import DIRECTORY_MODE, StoreLayout, is_uid
from modelcache_api.manifest import ContentManifest
from modelcache_api.quantities import format_bytes

_EXIT_TERMINATED: Final = 128 + signal.SIGTERM
_PROGRAM: Final = Program(
    "modelcache-agent adopt", "Takes a local tree in as a version's files, without a download."
)
OPTIONS: Final = (
    Option("store", "Folder of the node's store.", parse_path, is_required=True),
    Option(
        "path",
        "The tree: a plain folder, or a repository or snapshot of a Hugging Face cache.",
        parse_path,
        is_required=True,
    ),
    Option("version-uid", "metadata.uid of the ModelVersion.", parse_text, is_required=True),
)


def main(arguments: Sequence[str]) -> int:
    """Adopt and tell."""
    # The first process of a container ignores SIGTERM unless it says otherwise.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_EXIT_TERMINATED))
    try:
        values = read_options(_PROGRAM, OPTIONS, arguments, os.environ)
        manifest = adopt(values["store"], values["path"], values["version_uid"])
    except (ConfigError, AdoptError) as error:
        print(f"modelcache-agent adopt: {error}", file=sys.stderr)  # noqa: T201 - its output
        return 1
    except OSError as error:
        print(f"modelcache-agent adopt: {describe(error)}", file=sys.stderr)  # noqa: T201
        return 1
    size = format_bytes(manifest.size_bytes)
    print(f"{len(manifest.files)} files, {size}, content digest of all of them:")  # noqa: T201
    print(manifest.digest)  # noqa: T201
    return 0


def adopt(store: Path, path: Path, uid: str) -> ContentManifest:
    """Stage the tree for the version.

    Raises:
        AdoptError, OSError: nothing was handed over.
    """
    if not is_uid(uid):
        raise AdoptError(f"--version-uid {uid!a} is no uid: give the ModelVersion's metadata.uid")
    layout = StoreLayout(store.resolve())
    if not layout.about.is_file():
        raise AdoptError(f"--store {store} is no store: start the agent on it first")
    tree = find_tree(path)
    if tree.fence.is_relative_to(layout.root) or layout.root.is_relative_to(tree.fence):
        raise AdoptError(f"--path {path} and the store lie in each other: give another folder")
    layout.adopt.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    with only_adopter(layout):
        files = list_files(tree)
        try:
            return stage(layout, uid, files)
        except (AdoptError, OSError) as error:
            free = shutil.disk_usage(layout.root).free
            needed = sum(file.size_bytes for file in files)
            if needed > free:
                raise AdoptError(
                    f"{describe(error)} (needs {format_bytes(needed)} without reflinks,"
                    f" {format_bytes(free)} are free)"
                ) from error
            raise
