"""The namespaces of an instance and the processes that hold them.

One holder keeps the network namespace, one holder per node keeps its mount namespace. Nothing is
pinned by a mount or a name: when the last process in a namespace ends, the kernel takes down all
of its mounts, loop devices, bridges and rules, however it came to the end.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.commands import run_quietly
from modelcache_testbed.components import Component
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.real_nodes import cgroups
from modelcache_testbed.real_nodes.layout import BRIDGE, GATEWAY, RealNode, living, pid_file

if TYPE_CHECKING:
    from modelcache_testbed.components import Supervisor

NETWORK = "network"
_PREFIX_BITS = 24

# Becoming a member happens before anything else, so that no descendant can be missed.
_ENTER = """
holder=$(sed -n '2s/ .*//p' "$1") || exit 126
[ -z "$2" ] || echo $$ > "$2" || exit 126
kinds=$3
shift 3
flags=
for kind in $kinds; do
  case $kind in mount) file=mnt ;; *) file=$kind ;; esac
  flags="$flags --$kind=/proc/$holder/ns/$file"
done
exec nsenter $flags -- "$@"
"""

_HOLD_NETWORK = f"""
set -e
ip link set lo up
ip link add {BRIDGE} type bridge
ip address add {GATEWAY}/{_PREFIX_BITS} dev {BRIDGE}
ip link set {BRIDGE} up
ip route add default dev {BRIDGE}
echo 1 > /proc/sys/net/ipv4/ip_forward
echo $$ > "$1"
exec sleep infinity
"""

# Everything is mounted while the namespace is private, and each mount then becomes the first of
# a group of its own: otherwise what is mounted below one would show up below its source as well.
_HOLD_NODE = f"""
set -e
folder=$1 address=$2 ready=$3
mount -t tmpfs -o mode=755 run /run
mount --bind "$folder/var-lib" /var/lib
mount --bind "$folder/var-log" /var/log
mount -o loop "$folder/store.ext4" /var/lib/modelcache
for file in "$folder"/etc/sysctl/*; do
  mount --bind "$file" "/proc/sys/$(basename "$file" | tr . /)"
done
mount --make-rshared /
ip address replace "$address/{_PREFIX_BITS}" dev {BRIDGE}
echo $$ > "$ready"
exec sleep infinity
"""

# What a kubelet wants of the kernel. The node sees these values in place of the machine's own,
# which are left as they are.
_KERNEL_SETTINGS = {
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}


def network_holder(supervisor: Supervisor, instance_folder: Path) -> Component:
    """Return the component that makes and keeps the network namespace."""
    ready = instance_folder / f"{NETWORK}.ready"
    argv = ("unshare", "--net", "--", "/bin/sh", "-c", _HOLD_NETWORK, "sh", str(ready))
    return Component(NETWORK, argv, lambda: _says(ready, supervisor.pid_of(NETWORK)))


def node_holder(supervisor: Supervisor, node: RealNode) -> Component:
    """Return the component that makes and keeps one node's mount namespace."""
    ready = node.folder / "holder.ready"
    script = ("/bin/sh", "-c", _HOLD_NODE, "sh", str(node.folder), node.address, str(ready))
    argv = ("unshare", "--mount", "--propagation=private", "--", *script)
    inside = _enter(node.instance_folder, NETWORK, "net", argv, node.daemons_cgroup)
    return Component(node.holder, inside, lambda: _says(ready, supervisor.pid_of(node.holder)))


def in_network(instance_folder: Path, component: Component) -> Component:
    """Return a component moved into the instance's network namespace."""
    return replace(component, argv=_enter(instance_folder, NETWORK, "net", component.argv))


def on_node(node: RealNode, component: Component) -> Component:
    """Return a component moved into a node: its network, mounts and cgroup."""
    argv = _enter(
        node.instance_folder, node.holder, "net mount", component.argv, node.daemons_cgroup
    )
    return replace(component, argv=argv)


def command_on_node(node: RealNode, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command line that runs in a node's namespaces, as one would by ssh."""
    return _enter(node.instance_folder, node.holder, "net mount", argv, node.daemons_cgroup)


def namespace_file(instance_folder: Path) -> Path:
    """Return the network namespace as a path; TestbedError while nothing holds it."""
    holder = living(instance_folder, NETWORK)
    if holder is None:
        raise TestbedError(f"the network of {instance_folder} is down")
    return Path(f"/proc/{holder.pid}/ns/net")


def prepare_node(node: RealNode, *, store_bytes: int) -> None:
    """Make the node's folders, its disk and what it believes of the kernel."""
    for name in ("var-lib/kubelet", "var-lib/modelcache", "var-log", "etc/sysctl"):
        (node.folder / name).mkdir(parents=True, exist_ok=True)
    for name, value in _KERNEL_SETTINGS.items():
        if Path("/proc/sys", *name.split(".")).exists():
            (node.settings / "sysctl" / name).write_text(f"{value}\n")
    if not node.store_image.exists():
        _make_disk(node.store_image, store_bytes)


def _make_disk(image: Path, size_bytes: int) -> None:
    scratch = image.with_suffix(".new")
    with scratch.open("wb") as file:
        file.truncate(size_bytes)
    run_quietly("mkfs.ext4", "-q", "-F", "-m", "0", str(scratch))
    scratch.replace(image)


def attached_loops(folder: Path) -> list[str]:
    """Return the loop devices whose file lies under ``folder``."""
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = Path(backing.read_text().strip())
        except OSError:  # detached since it was listed
            continue
        if file.is_relative_to(folder):
            found.append(backing.parents[1].name)
    return found


def _enter(
    instance_folder: Path, holder: str, kinds: str, argv: tuple[str, ...], cgroup: str = ""
) -> tuple[str, ...]:
    member = str(cgroups.members_file(cgroup)) if cgroup else ""
    holder_file = str(pid_file(instance_folder, holder))
    return ("/bin/sh", "-c", _ENTER, "sh", holder_file, member, kinds, *argv)


def _says(ready_file: Path, pid: int | None) -> bool:
    return ready_file.exists() and ready_file.read_text().strip() == str(pid)
