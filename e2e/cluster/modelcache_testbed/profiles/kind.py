"""Profile ``kind``: nodes as Docker containers, for machines with Docker and an image registry.

Where either is missing, the message says what and names the profile that needs neither.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.commands import run_quietly
from modelcache_testbed.errors import ProgramMissingError, TestbedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelcache_testbed.cluster import Cluster
    from modelcache_testbed.components import Component
    from modelcache_testbed.instance import Instance
    from modelcache_testbed.programs import Program

DEFAULT_NODE_GRACE_SECONDS = 50  # kind's own; it cannot be chosen here
CONFIGURATION = Path(__file__).resolve().parents[3] / "kind.yaml"
_OTHER_WAY = "`--profile nodes` gives three real nodes without Docker or a registry (as root)"
_DOCKER_SECONDS = 20
_CREATE_SECONDS = 900


def check_machine(_instance: Instance) -> None:
    """Raise ProgramMissingError naming all that is missing, and the cure for each."""
    missing = []
    if not shutil.which("kind"):
        missing.append("the program kind is not installed: install it (a single file) on the PATH")
    if not shutil.which("docker"):
        missing.append("the program docker is not installed: install Docker Engine")
    elif not _docker_answers():
        missing.append("no Docker daemon answers `docker info`: start it, or set DOCKER_HOST")
    if missing:
        lines = "".join(f"\n  - {line}" for line in missing)
        raise ProgramMissingError(f"profile kind cannot be used here:{lines}\n{_OTHER_WAY}")


def _docker_answers() -> bool:
    try:
        run_quietly("docker", "info", seconds=_DOCKER_SECONDS)
    except TestbedError:
        return False
    return True


def programs() -> Sequence[Program]:
    """Nothing is built: kind brings its own."""
    return ()


def port_names() -> Sequence[str]:
    """No ports: Docker chooses the API server's."""
    return ()


def prepare(instance: Instance, node_names: Sequence[str]) -> None:
    """Create the cluster unless it is there."""
    if node_names:
        raise TestbedError(f"profile kind has the nodes of {CONFIGURATION.name}: change that file")
    if _name(instance) in run_quietly("kind", "get", "clusters").split():
        return
    try:
        run_quietly(
            "kind",
            "create",
            "cluster",
            f"--name={_name(instance)}",
            f"--config={CONFIGURATION}",
            f"--kubeconfig={kubeconfig(instance)}",
            "--wait=120s",
            seconds=_CREATE_SECONDS,
        )
    except TestbedError as error:
        raise TestbedError(_explain(str(error))) from None


def _explain(error: str) -> str:
    if "pull" not in error:
        return error
    cure = "make its registry reachable for Docker, or `docker load` the image from an archive"
    return f"kind's node image is neither here nor can it be pulled: {cure}.\n{_OTHER_WAY}\n{error}"


def stages(_instance: Instance) -> Sequence[Sequence[Component]]:
    """No processes of the tool's own: Docker keeps them."""
    return ()


def add_nodes(_cluster: Cluster, _names: Sequence[str]) -> None:
    """Nodes come with the cluster."""


def kubeconfig(instance: Instance) -> Path:
    """Return the administrator's kubeconfig."""
    return instance.folder / "kubeconfig"


def clean_up(instance: Instance) -> None:
    """Delete the cluster; none being there is fine."""
    if shutil.which("kind"):
        run_quietly("kind", "delete", "cluster", f"--name={_name(instance)}")


def load_image(instance: Instance, archive: Path) -> None:
    """Bring the images of an archive into all nodes."""
    run_quietly("kind", "load", "image-archive", str(archive), f"--name={_name(instance)}")


def _name(instance: Instance) -> str:
    return f"modelcache-{instance.folder.name}"
