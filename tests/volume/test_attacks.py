"""Root in a container against what its pod shares with others: nothing changes a byte.

The attacker has the capabilities that container runtimes give by default, a read-only mount made by
the driver's process, and the volume's socket.
"""

from __future__ import annotations

import json
import mmap
import os
import sys

import pytest

from fakes.mount_room import READER_UID
from fakes.played_kubelet import Pod
from fakes.socket_bench import READY, open_socket_bench
from modelcache_agent.volume.folders import VolumeFolder

POD = Pod()
BODY = b"weights!" * 4096
# What containerd and CRI-O leave to a container.
CONTAINER = {
    "audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "mknod",
    "net_bind_service", "net_raw", "setfcap", "setgid", "setpcap", "setuid", "sys_chroot",
}  # fmt: skip
EVERY = CONTAINER | {
    "dac_read_search", "linux_immutable", "net_broadcast", "net_admin", "ipc_lock", "ipc_owner",
    "sys_module", "sys_rawio", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
    "sys_resource", "sys_time", "sys_tty_config", "lease", "audit_control", "mac_override",
    "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf",
    "checkpoint_restore",
}  # fmt: skip

BEGIN = """
import array, ctypes, fcntl, mmap, os, socket, sys
os.chdir(sys.argv[1])
agent, stored = sys.argv[3], sys.argv[4]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p

def check(result):
    if result in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "")
    return result

def weights():
    return os.open("model/weights", os.O_RDONLY)

def ask(*frames):
    line = socket.socket(socket.AF_UNIX)
    line.connect("agent.sock")
    for body in (b'{"type":"hello","versions":[1]}', *frames):
        line.sendall(len(body).to_bytes(4, "little") + body)
    while True:
        _data, sent, _flags, _from = line.recvmsg(65536, socket.CMSG_SPACE(16))
        for _level, _kind, content in sent:
            return array.array("i", content)[0]

INDEX = b'{"type":"index","id":1}'

def index():
    return os.open("/proc/self/fd/%d" % ask(INDEX), os.O_RDWR)

def change(descriptor, protection, flags):
    mmap.mmap(descriptor, 4096, flags, protection)[0:1] = b"!"
"""
RUN = """
import errno, json
results = {}
for name, code in json.loads(sys.argv[2]).items():
    child = os.fork()
    if child == 0:
        try:
            exec(code)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    results[name] = errno.errorcode.get(status, status)
print(json.dumps(results))
"""
ATTACKS = {
    "a writable map": "change(weights(), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED)",
    "mprotect": "at = check(libc.mmap(0, 4096, 1, 1, weights(), 0)); "
    "check(libc.mprotect(ctypes.c_void_p(at), 4096, 3))",
    "reopen by procfs": "os.open(f'/proc/self/fd/{weights()}', os.O_RDWR)",
    "write to a descriptor": "os.write(weights(), b'!')",
    "punch a hole": "check(libc.fallocate(weights(), 3, 0, 4096))",
    "truncate": "os.truncate('model/weights', 0)",
    "chmod": "os.chmod('model/weights', 0o777)",
    "chmod of a descriptor": "os.fchmod(weights(), 0o777)",
    "attributes": "fcntl.ioctl(weights(), 0x40086602, b'\\x10\\0\\0\\0')",
    "remount": "check(libc.mount(None, b'.', None, 4096 | 32, None))",
    "unmount": "check(libc.umount2(os.fsencode(sys.argv[1]), 2))",
    "bind again": "check(libc.mount(b'.', b'/mnt', None, 4096, None))",
    "a user namespace of its own, then remount": "check(libc.unshare(0x10020000)); "
    "check(libc.mount(None, b'.', None, 4096 | 32, None))",
    "open by handle": "h = (ctypes.c_uint * 34)(128); n = ctypes.c_int(); "
    "check(libc.name_to_handle_at(-100, b'model/weights', h, ctypes.byref(n), 0)); "
    "check(libc.open_by_handle_at(os.open('.', os.O_RDONLY), h, os.O_RDWR))",
    "the agent's root": "os.open(f'/proc/{agent}/root{stored}', os.O_RDWR)",
    "the agent's memory": "os.open(f'/proc/{agent}/mem', os.O_RDWR)",
    "the agent's mounts": "check(libc.setns(os.open(f'/proc/{agent}/ns/mnt', os.O_RDONLY), 0))",
    "another socket in the volume": "socket.socket(socket.AF_UNIX).bind('other.sock')",
    "the socket away": "os.unlink('agent.sock')",
}
INDEX_ATTACKS = {
    "write": "os.write(index(), b'!')",
    "write to what was given": "os.write(ask(INDEX), b'!')",
    "truncate": "os.ftruncate(index(), 0)",
    "grow": "os.ftruncate(index(), 1 << 20)",
    "punch a hole": "check(libc.fallocate(index(), 3, 0, 4096))",
    "a writable map": "change(index(), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED)",
    "mprotect": "at = check(libc.mmap(0, 4096, 1, 1, index(), 0)); "
    "check(libc.mprotect(ctypes.c_void_p(at), 4096, 3))",
    "other seals": "fcntl.fcntl(index(), fcntl.F_ADD_SEALS, 16)",
}
REFUSALS = {"EROFS", "EACCES", "EPERM", "EBADF", "ENOSPC", "EUSERS"}


@pytest.fixture
def volume(kubelet, room):
    """A pod's mount with a model and the agent's socket in it."""
    target = kubelet.publish(POD)
    key = f"{POD.uid}/{POD.volume_id}"
    folder = VolumeFolder(room.store / "pods" / key)
    folder.model.mkdir()
    for name, body in (
        ("weights", BODY),
        ("w.safetensors", (8).to_bytes(8, "little") + b"{     }"),
    ):
        (folder.model / name).write_bytes(body + b" ")
        (folder.model / name).chmod(0o444)
    with open_socket_bench(room.store / "pods") as bench:
        bench.show(key, READY)
        yield target, folder, bench


def attack(room, volume, attacks, capabilities=CONTAINER):
    target, folder, _bench = volume
    dropped = ",".join(f"-{name}" for name in sorted(EVERY - capabilities))
    bound = [f"--bounding-set={dropped}"] if dropped else []
    container = ["setpriv", *bound, "--inh-caps=-all"]
    program = [sys.executable, "-c", BEGIN + RUN, str(target), json.dumps(attacks)]
    stored = str(folder.model / "weights")
    found = room.run(*container, *program, str(os.getpid()), stored)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def test_root_in_a_container_cannot_change_a_byte_that_others_map(room, volume):
    weights = volume[1].model / "weights"
    with weights.open("rb") as file:
        seen = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        results = attack(room, volume, ATTACKS)
        assert set(results) == set(ATTACKS)
        assert set(results.values()) <= REFUSALS, results
        assert seen[:] == BODY + b" "
    names = sorted(path.name for path in volume[1].content.iterdir())
    assert names == ["agent.sock", "model", "status.json"]


def test_it_is_the_capabilities_that_a_container_lacks_which_stop_some_of_it(room, volume):
    """So the attacks above are the right ones: they succeed for who may do anything."""
    names = ("remount", "the agent's root", "the agent's memory")
    results = attack(room, volume, {name: ATTACKS[name] for name in names}, EVERY)
    assert results == dict.fromkeys(names, 0)


def test_what_it_writes_into_its_own_map_nobody_else_sees(room, volume):
    private = "change(weights(), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE)"
    assert attack(room, volume, {"private": private}) == {"private": 0}
    assert (volume[1].model / "weights").read_bytes() == BODY + b" "


def test_the_index_that_all_clients_share_is_sealed(room, volume):
    results = attack(room, volume, INDEX_ATTACKS)
    assert set(results.values()) <= REFUSALS | {"EINVAL"}, results
    assert "EINVAL" not in {results["write"], results["truncate"], results["a writable map"]}
    made = list(volume[2].sockets.indexes._made.values())
    assert len(made) == 1, "one for all"
    assert os.pread(made[0].descriptor, 8, 0) == b"MCINDEX1"


def test_any_user_connects_through_the_read_only_mount(room, volume):
    target = volume[0]
    program = BEGIN + "ask(INDEX); print('there')"
    found = room.run(sys.executable, "-c", program, str(target), "", "", "", uid=READER_UID)
    assert found.stdout == "there\n", found.stderr
    assert volume[2].counters.accepted == 1
