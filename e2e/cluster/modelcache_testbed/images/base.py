"""The base image where no registry can be reached: Debian's own Python under the official tag.

The Dockerfiles stay as anybody would want them. What this machine needs to install packages (its
certificate authorities, its pip configuration) is in this local image and nowhere else; the final
stages of the Dockerfiles leave it behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.commands import run_quietly
from modelcache_testbed.console import say
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.folders import cache_folder
from modelcache_testbed.locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUITE = "bookworm"
_INCLUDED = ("python3", "python3-venv", "python3-pip", "ca-certificates")
_AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
_BUILD_SECONDS = 1800
# Settings that name files of this machine mean nothing in a build.
_PIP_FILES = {"find-links", "cache-dir", "log", "client-cert", "constraint", "target", "prefix"}

# debootstrap mounts what it needs in the folder; in a namespace of its own nothing is left behind.
_BOOTSTRAP = 'exec unshare --mount --propagation=private -- debootstrap "$@"'


def base_archive() -> Path:
    """Return the archive of the base's root file system, made once per machine. Needs root."""
    archive = cache_folder() / "images" / f"base-{SUITE}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with locked(archive.with_suffix(".lock")):
        if not archive.exists():
            say(f"making the base image from Debian {SUITE} (once per machine, about a minute)")
            _make(archive)
    return archive


def _make(archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".base-") as scratch:
        root = Path(scratch) / "root"
        include = f"--include={','.join(_INCLUDED)}"
        flags = ["--variant=minbase", include, SUITE, str(root), *_mirror()]
        run_quietly("/bin/sh", "-c", _BOOTSTRAP, "sh", *flags, seconds=_BUILD_SECONDS)
        _configure(root)
        packed = Path(scratch) / "base.tar"
        skipped = [
            f"--exclude=./{path}" for path in ("var/cache/apt/archives/*", "proc/*", "sys/*")
        ]
        tar = ("tar", "--numeric-owner", *skipped, "-C", str(root), "-cf", str(packed), ".")
        run_quietly(*tar, seconds=_BUILD_SECONDS)
        packed.replace(archive)


def _mirror() -> Iterator[str]:
    """Yield the mirror that this machine itself installs from; debootstrap's choice otherwise."""
    if not shutil.which("apt-get"):
        return
    form = ("--format", "$(REPO_URI)", "Created-By: Packages")
    try:
        sites = run_quietly("apt-get", "indextargets", *form).split()
    except TestbedError:
        return
    yield from sites[:1]


def _configure(root: Path) -> None:
    machine_authorities = Path("/", _AUTHORITIES)
    if machine_authorities.exists():
        shutil.copyfile(machine_authorities, root / _AUTHORITIES)
    lines = [f"{name} = {value}" for name, value in sorted(_pip_settings(os.environ).items())]
    (root / "etc" / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))


def _pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return this machine's settings of pip that hold in a build as well."""
    prefix = "PIP_"
    settings = {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith(prefix)
    }
    settings |= _from_pip()
    kept = {name: value for name, value in settings.items() if name not in _PIP_FILES}
    if "cert" in kept:
        kept["cert"] = f"/{_AUTHORITIES}"
    return kept


def _from_pip() -> dict[str, str]:
    pip = shutil.which("pip") or shutil.which("pip3")
    if pip is None:
        return {}
    listed = run_quietly(pip, "config", "list").splitlines()
    pairs = (line.partition("=") for line in listed if line.startswith("global."))
    return {name.removeprefix("global."): value.strip("'") for name, _, value in pairs}
