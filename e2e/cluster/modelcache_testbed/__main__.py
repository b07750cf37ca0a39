"""The command line: ``python -m modelcache_testbed up|down|status|build|env|load|images``."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.console import answer, say
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.gobuild import ensure_built
from modelcache_testbed.images.build import BASE, build_images, built_archives
from modelcache_testbed.local_cluster import DEFAULT_NAME, LocalCluster
from modelcache_testbed.profiles import DEFAULT_PROFILE, PROFILES, find_profile
from modelcache_testbed.programs import BUILT_PROGRAMS
from modelcache_testbed.seaweed import Seaweed

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="modelcache_testbed",
        description="A real Kubernetes on this machine, kept outside the work tree.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {
        "up": "bring the cluster up; prints the path of its kubeconfig last",
        "down": "end it and delete its folder",
        "status": "show the components and their logs",
        "build": "build the programs that the cache lacks",
        "env": "print the shell lines that select the cluster, and its store if there is one",
        "load": "bring archives of images into all nodes; ours if none is named",
        "images": "build our images; prints name, size and archive of each",
    }
    subparsers = {name: commands.add_parser(name, help=text) for name, text in helps.items()}
    for subparser in subparsers.values():
        subparser.add_argument("--profile", help=f"{', '.join(sorted(PROFILES))}")
        subparser.add_argument("--name", default=DEFAULT_NAME, help="name of the instance")
        subparser.add_argument(
            "--dir", type=Path, help="folder of the instance, in place of --name"
        )
    up = subparsers["up"]
    up.add_argument(
        "--nodes", default="", metavar="A,B,C", help="nodes to add: played, or real (profile nodes)"
    )
    up.add_argument("--store", action="store_true", help="an S3 object store beside the cluster")
    up.add_argument(
        "--node-grace-seconds",
        type=int,
        help="how long a silent node counts as Ready (new instances only)",
    )
    subparsers["build"].add_argument(
        "program", nargs="*", metavar="PROGRAM", help="only these", choices=[[], *BUILT_PROGRAMS]
    )
    subparsers["load"].add_argument("archive", nargs="*", type=Path)
    subparsers["images"].add_argument("--base", default=BASE, help="base image of the Dockerfiles")
    return parser


def _cluster(options: argparse.Namespace) -> LocalCluster:
    wanted = options.profile or DEFAULT_PROFILE
    if options.dir:
        return LocalCluster(options.dir, profile=wanted)
    return LocalCluster.named(options.name, profile=wanted)


def _store(options: argparse.Namespace) -> Seaweed:
    if options.dir:
        return Seaweed(options.dir.with_name(options.dir.name + "-store"))
    return Seaweed.named(options.name)


def _up(options: argparse.Namespace) -> int:
    cluster = _cluster(options)
    if options.profile not in {None, cluster.profile_name}:
        raise TestbedError(
            f"{cluster.folder} holds a cluster of the profile {cluster.profile_name}:"
            " take it down first, or give another --name"
        )
    if options.store:
        _store(options).up()
    cluster.up(
        node_grace_seconds=options.node_grace_seconds,
        node_names=[name for name in options.nodes.split(",") if name],
    )
    answer(str(cluster.kubeconfig))
    return 0


def _down(options: argparse.Namespace) -> int:
    _cluster(options).down()
    _store(options).down()
    return 0


def _status(options: argparse.Namespace) -> int:
    cluster = _cluster(options)
    pids = cluster.status()
    for name, pid in pids.items():
        state = f"running, pid {pid}" if pid else "not running"
        answer(f"{name:25} {state:22} {cluster.log_file(name)}")
    if _store(options).exists:
        state = "running" if _store(options).is_running else "not running"
        answer(f"{'store':25} {state:22} {_store(options).log_file}")
    if not cluster.exists:
        say(f"there is no instance in {cluster.folder}")
    elif not pids:
        answer(
            f"{cluster.profile_name} keeps its own processes; its kubeconfig: {cluster.kubeconfig}"
        )
    return 0 if cluster.exists and all(pids.values()) else 1


def _build(options: argparse.Namespace) -> int:
    programs = [BUILT_PROGRAMS[name] for name in options.program]
    programs = programs or list(find_profile(options.profile or DEFAULT_PROFILE).programs())
    ensure_built(programs)
    for program in programs:
        answer(f"{program.name} {program.version} {program.path}")
    return 0


def _env(options: argparse.Namespace) -> int:
    store = _store(options)
    variables = {"KUBECONFIG": str(_cluster(options).kubeconfig)}
    variables.update(store.environment() if store.exists else {})
    for name, value in variables.items():
        answer(f"export {name}={shlex.quote(value)}")
    return 0


def _load(options: argparse.Namespace) -> int:
    cluster = _cluster(options)
    for archive in options.archive or built_archives():
        say(f"loading {archive.name}")
        cluster.load_image(archive)
    return 0


def _images(options: argparse.Namespace) -> int:
    for image in build_images(base=options.base):
        answer(f"{image.reference} {image.size_bytes / 1e6:.0f}MB {image.archive}")
    return 0


_COMMANDS = {
    "up": _up,
    "down": _down,
    "status": _status,
    "build": _build,
    "env": _env,
    "load": _load,
    "images": _images,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors that a person can act on become one message."""
    options = _parser().parse_args(arguments)
    try:
        find_profile(options.profile or DEFAULT_PROFILE)
        return _COMMANDS[options.command](options)
    except TestbedError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; run the same command again to go on, or down to clean up")
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
