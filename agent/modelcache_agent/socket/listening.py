"""A listening socket under the volume's name."""

from __future__ import annotations

import os
import socket
from typing import Final

from modelcache_agent.decide.socket_rules import MOST_CONNECTIONS
from modelcache_agent.volume.folders import VolumeFolder

# Connecting takes write permission; the folder decides who comes near it.
_MODE: Final = 0o666
_TEMPORARY: Final = ".agent.sock"
# All processes of a pod may begin at once: each is to hear whether it is taken, or why not.
_WAITING: Final = MOST_CONNECTIONS


def open_listener(folder: VolumeFolder) -> socket.socket:
    """Listen in the volume. What an earlier agent left there is replaced in one step.

    Raises:
        OSError: the volume is gone, or the disk refuses.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    # Paths of sockets end at 107 bytes, those of volumes do not.
    root = os.open(folder.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _remove(root)
        listener.bind(f"/proc/self/fd/{root}/{_TEMPORARY}")
        os.chmod(_TEMPORARY, _MODE, dir_fd=root)
        listener.listen(_WAITING)
        name = folder.socket.relative_to(folder.root)
        os.rename(_TEMPORARY, name, src_dir_fd=root, dst_dir_fd=root)
    except OSError:
        listener.close()
        _remove(root)
        raise
    finally:
        os.close(root)
    return listener


def _remove(root: int) -> None:
    try:
        os.unlink(_TEMPORARY, dir_fd=root)
    except FileNotFoundError:
        return
