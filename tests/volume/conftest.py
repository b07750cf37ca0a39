"""Real mounts in a private mount namespace, by the driver's real process."""

from __future__ import annotations

import os
import subprocess

import pytest

from fakes.mount_room import MountRoom
from fakes.played_kubelet import PlayedKubelet
from fakes.store_world import opened


def why_no_mounts() -> str | None:
    """Why real mounts cannot be tried here, or None."""
    if os.geteuid() != 0:
        return "mounting needs root"
    tried = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    return None if tried.returncode == 0 else "this machine refuses mount namespaces"


@pytest.fixture
def room():
    reason = why_no_mounts()
    if reason is not None:
        pytest.skip(reason)
    with MountRoom() as room:
        with opened(room.store):
            pass
        yield room


@pytest.fixture
def kubelet(room):
    kubelet = PlayedKubelet(room)
    kubelet.start_driver()
    try:
        yield kubelet
    finally:
        kubelet.close()
