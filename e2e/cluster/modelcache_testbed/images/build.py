"""Building our images from the Dockerfiles and saving them as archives for clusters to load."""

from __future__ import annotations

import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.commands import run_quietly
from modelcache_testbed.console import say
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.folders import cache_folder
from modelcache_testbed.images.engine import engine

if TYPE_CHECKING:
    from modelcache_testbed.images.engine import Engine

BASE = "python:3.11-slim-bookworm"
NAMES = ("operator", "agent")
_ROOT = Path(__file__).resolve().parents[4]


@dataclass(frozen=True)
class BuiltImage:
    """One of our images and the archive that holds it."""

    reference: str
    archive: Path
    size_bytes: int


def reference_of(name: str) -> str:
    """Return the name that the chart uses when nothing is set: the version of this tree."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    return f"modelcache/{name}:{project['version']}"


def archive_of(name: str) -> Path:
    """Return where the archive of an image lies, whether it was built or not."""
    return cache_folder() / "images" / f"{name}.tar"


def built_archives() -> list[Path]:
    """Return the archives of all our images; TestbedError if one was not built."""
    archives = [archive_of(name) for name in NAMES]
    missing = [archive.stem for archive in archives if not archive.exists()]
    if missing:
        raise TestbedError(f"not built yet: {', '.join(missing)}; run `make images`")
    return archives


def build_images(*, base: str = BASE) -> list[BuiltImage]:
    """Build and save all our images; what has not changed is taken from the daemon's cache."""
    with engine() as docker:
        docker.ensure_base(base)
        return [_build(docker, name, base) for name in NAMES]


def _build(docker: Engine, name: str, base: str) -> BuiltImage:
    reference, archive = reference_of(name), archive_of(name)
    started = time.monotonic()
    say(f"building {reference}")
    docker.docker(
        "build",
        "--network=host",
        f"--file={_ROOT / f'Dockerfile.{name}'}",
        f"--build-arg=BASE={base}",
        f"--build-arg=VERSION={reference.rpartition(':')[2]}",
        f"--build-arg=REVISION={_revision()}",
        f"--tag={reference}",
        str(_ROOT),
    )
    size = int(docker.docker("image", "inspect", "--format={{.Size}}", reference))
    archive.parent.mkdir(parents=True, exist_ok=True)
    scratch = archive.with_suffix(".new")
    docker.docker("save", f"--output={scratch}", reference)
    scratch.replace(archive)
    say(f"building {reference}: {size / 1e6:.0f} MB after {time.monotonic() - started:.0f} s")
    return BuiltImage(reference, archive, size)


def _revision() -> str:
    try:
        return run_quietly("git", "-C", str(_ROOT), "rev-parse", "HEAD").strip()
    except TestbedError:
        return "unknown"
