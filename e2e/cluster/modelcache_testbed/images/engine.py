"""A Docker daemon to build with: the machine's if one answers, else one of the tool's own.

The own one has no bridge, no firewall rules and no forwarding, mounts in a namespace of its own,
and ends with the block that asked for it. Layers stay in the cache for the next build.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.commands import run_quietly
from modelcache_testbed.components import Component, Supervisor
from modelcache_testbed.console import say
from modelcache_testbed.errors import ProgramMissingError, TestbedError
from modelcache_testbed.folders import cache_folder
from modelcache_testbed.images.base import base_archive
from modelcache_testbed.locks import locked
from modelcache_testbed.real_nodes import cgroups
from modelcache_testbed.real_nodes.layout import instance_cgroup
from modelcache_testbed.real_nodes.machine import IMAGE_PACKAGES, ensure_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = "dockerd"
_ANSWER_SECONDS = 20
_BUILD_SECONDS = 1800

_START = """
echo $$ > "$1" || exit 126
shift
exec unshare --mount --propagation=private -- /bin/sh -c '
mount -t tmpfs -o mode=755 run /run || exit 126
exec "$@"' sh "$@"
"""


@dataclass(frozen=True)
class Engine:
    """A daemon that answers, and whether it can reach a registry."""

    client: str
    host: str | None
    is_own: bool

    def docker(self, *arguments: str, stdin_file: Path | None = None) -> str:
        """Run the client; TestbedError with the end of its errors if it fails."""
        argv = [self.client, *(["--host", self.host] if self.host else []), *arguments]
        # The older builder needs nothing but the daemon; the newer one is a plug-in.
        environment = {**os.environ, "DOCKER_BUILDKIT": "0"} if self.is_own else None
        if stdin_file is not None:
            argv = ["/bin/sh", "-c", 'f=$1; shift; exec "$@" < "$f"', "sh", str(stdin_file), *argv]
        return run_quietly(*argv, seconds=_BUILD_SECONDS, environment=environment)

    def has_image(self, reference: str) -> bool:
        """Say whether the daemon has an image."""
        return bool(self.docker("image", "ls", "-q", reference).strip())

    def ensure_base(self, reference: str) -> None:
        """Provide the Dockerfiles' base image; a daemon with a registry pulls it by itself."""
        if self.is_own and not self.has_image(reference):
            path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            self.docker("import", f"--change=ENV {path}", "-", reference, stdin_file=base_archive())


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """Give a daemon that answers; one of the tool's own ends with the block."""
    client = shutil.which("docker")
    if client and _answers(client):
        yield Engine(client, None, is_own=False)
        return
    if os.geteuid():
        raise ProgramMissingError(
            "no Docker daemon answers `docker info`, and starting one needs root:"
            " start Docker, or run this as root"
        )
    ensure_packages(IMAGE_PACKAGES)
    with _own_daemon() as own:
        yield own


def _answers(client: str, *flags: str) -> bool:
    try:
        run_quietly(client, *flags, "info", seconds=_ANSWER_SECONDS)
    except TestbedError:
        return False
    return True


@contextlib.contextmanager
def _own_daemon() -> Iterator[Engine]:
    folder = cache_folder() / "docker"
    folder.mkdir(parents=True, exist_ok=True)
    client = _client_of_the_package()
    host = f"unix://{folder / 'docker.sock'}"
    cgroup = instance_cgroup(folder)
    supervisor = Supervisor(folder)
    with locked(folder / "lock"):
        _end(supervisor, cgroup)
        cgroups.create(cgroup)
        say("starting a Docker daemon for the build")
        try:
            supervisor.start([_daemon(folder, client, host, cgroup)])
            yield Engine(client, host, is_own=True)
        finally:
            _end(supervisor, cgroup)


def _daemon(folder: Path, client: str, host: str, cgroup: str) -> Component:
    argv = ("/bin/sh", "-c", _START, "sh", str(cgroups.members_file(cgroup)), "dockerd")
    flags = (
        f"--host={host}",
        f"--data-root={folder / 'data'}",
        f"--pidfile={folder / 'dockerd.pid'}",
        f"--cgroup-parent={cgroup}",
        "--bridge=none",
        "--iptables=false",
        "--ip6tables=false",
        "--ip-forward=false",
        "--ip-masq=false",
    )
    return Component(_NAME, (*argv, *flags), lambda: _answers(client, "--host", host))


def _end(supervisor: Supervisor, cgroup: str) -> None:
    supervisor.stop(_NAME)
    cgroups.end_members(cgroup)
    cgroups.remove(cgroup)


def _client_of_the_package() -> str:
    # A newer client on the PATH may refuse to talk to the daemon of the package.
    packaged = Path("/usr/bin/docker")
    return str(packaged) if packaged.exists() else shutil.which("docker") or "docker"
