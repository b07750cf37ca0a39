"""The host tier: two processes read one locked copy, and an agent is restarted under them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from modelcache_api.quantities import format_bytes
from modelcache_testbed.bucket import minilm_folder
from modelcache_testbed.console import say
from modelcache_testbed.demo import memory
from modelcache_testbed.demo.scene import CACHE, NAME, Scene
from modelcache_testbed.demo.steps import check, start_step
from modelcache_testbed.demo.talk import Program
from modelcache_testbed.demo.vectors import distance
from modelcache_testbed.memory_cgroup import MemoryCgroup, memory_cgroup
from modelcache_testbed.waiting import wait_until

_TITLES = {"plain": "safetensors + torch", "transformers": "transformers"}
_WEIGHTS = "model.safetensors"
_SAME = 1e-5
# Beside the weights: a tokenizer, and what a library loads when it first needs it.
_LITTLE = 0.02
_POD = "reader"


@dataclass(frozen=True)
class Reader:
    """One process, and its memory cgroup where one can be made."""

    title: str
    program: Program
    cgroup: MemoryCgroup | None


class HostPart:
    """On one warm node; `reference` is what v1 is to answer."""

    def __init__(self, scene: Scene, reference: Sequence[float]) -> None:
        """Refer to the scene."""
        self._scene = scene
        node = self._node = min(scene.warm_nodes())
        self._agent = scene.system.agents[node]
        self._reference = reference

    def show(self) -> None:
        """Read, restart the agent, and read again."""
        start_step(
            "Host tier: two processes read the model by its path. The disk is not read, and there "
            "is one copy."
        )
        unfit = self._scene.find_unfit()
        if unfit is not None:
            say(f"   NOT SHOWN: HostTierUnfit: {unfit}")
            self._restart(None, ())
            return
        with self._pod_file() as file, self._readers(file.parent) as readers:
            self._show_lock(file)
            self._read(readers, file)
            self._show_shares(readers, file)
            self._restart(file, readers)

    @contextlib.contextmanager
    def _pod_file(self) -> Iterator[Path]:
        """The weights in the volume of a pod that was scheduled there."""
        (pod,) = self._scene.add_pods(_POD)
        self._node = pod["spec"]["nodeName"]
        self._agent = self._scene.system.agents[self._node]
        volumes = self._scene.volumes(self._node)
        model = volumes.publish(pod, CACHE) / "model"
        wait_until(model.is_dir, seconds=30, what="the model in the pod's volume")
        try:
            yield model / _WEIGHTS
        finally:
            volumes.unpublish(pod)
            self._scene.remove_pods(_POD)

    @contextlib.contextmanager
    def _readers(self, model: Path) -> Iterator[Sequence[Reader]]:
        """Both at once, after a rehearsal with another copy of the model."""
        with contextlib.ExitStack() as stack:
            readers = []
            for kind, title in _TITLES.items():
                cgroup = _enter_cgroup(stack)
                log = self._scene.system.folder / f"reader-{kind}.log"
                program = Program(f"read_{kind}", model, minilm_folder(), log=log, cgroup=cgroup)
                readers.append(Reader(title, stack.enter_context(program), cgroup))
            for reader in readers:
                reader.program.ready()
            yield readers

    def _show_lock(self, file: Path) -> None:
        size, locked = file.stat().st_size, memory.read_locked(self._agent_pid())
        value = self._scene.labels(self._node)[self._scene.label_key()]
        check(value == "host", f"{self._node}: the label's value is `host`")
        check(
            locked >= size,
            f"its agent has locked {format_bytes(locked)} (VmLck); the weights are "
            f"{format_bytes(size)}",
        )

    def _read(self, readers: Sequence[Reader], file: Path) -> None:
        """Each touches every byte and embeds a sentence."""
        size = file.stat().st_size
        for reader in readers:
            pid, cgroup = reader.program.pid, reader.cgroup
            read, own = memory.read_disk_reads(pid), memory.read_own(pid)
            charged = cgroup.file_bytes if cgroup else 0
            vector = reader.program.ask()
            read = memory.read_disk_reads(pid) - read
            own = max(0, memory.read_own(pid) - own)
            check(
                read < _LITTLE * size,
                f"{reader.title}: {read} bytes were read from a disk (/proc/{pid}/io)",
            )
            check(
                own < size / 2,
                f"{reader.title}: {format_bytes(own)} more memory of its own, no copy of the model",
            )
            if cgroup:
                charged = max(0, cgroup.file_bytes - charged)
                check(
                    charged < size / 10,
                    f"{reader.title}: its cgroup pays for {format_bytes(charged)} of page cache",
                )
            check(
                distance(vector, self._reference) < _SAME,
                f"{reader.title}: the embedding is the reference's (within {_SAME:g})",
            )
        if any(reader.cgroup is None for reader in readers):
            say("   no figures of cgroups: this user can make none")

    def _show_shares(self, readers: Sequence[Reader], file: Path) -> None:
        """All who map the file count the same pages."""
        pids = {"the agent": self._agent_pid()} | {r.title: r.program.pid for r in readers}
        shares = {title: memory.read_share(pid, file) for title, pid in pids.items()}
        for title, share in shares.items():
            say(
                f"   {title:20} has mapped {format_bytes(share.resident):>7} of the file, "
                f"its share (PSS) is {format_bytes(share.proportional)}"
            )
        size = file.stat().st_size
        together = sum(share.proportional for share in shares.values())
        check(
            all(share.resident >= 0.95 * size for share in shares.values())
            and abs(together - size) < 0.05 * size,
            f"the shares add up to {format_bytes(together)}: one copy of {format_bytes(size)}",
        )

    def _restart(self, file: Path | None, readers: Sequence[Reader]) -> None:
        """Kill the agent while the bucket is off."""
        start_step(
            "The agent is killed and restarted with the bucket switched off: nothing is fetched or "
            "read again."
        )
        before = self._scene.labels(self._node)
        self._scene.store.stop()
        self._agent.kill()
        if file is not None:
            cached, size = memory.read_cached(file), file.stat().st_size
            check(cached >= size, f"without an agent {format_bytes(cached)} stay in the page cache")
        mark = self._agent.log_file.stat().st_size
        self._agent.start()
        wait_until(
            lambda: "labels=1" in self._agent.log_file.read_bytes()[mark:].decode(errors="replace"),
            seconds=30,
            what=f"the agent of {self._node} taking its store back",
        )
        check(self._scene.labels(self._node) == before, "labels are as they were")
        check(self._scene.condition("Ready")["status"] == "True", "the ModelCache stays Ready")
        if file is not None:
            self._show_lock_again(file)
            self._read(readers, file)
        self._scene.store.start()

    def _show_lock_again(self, file: Path) -> None:
        size, pid = file.stat().st_size, self._agent_pid()
        locked, read = memory.read_locked(pid), memory.read_disk_reads(pid)
        check(
            locked >= size and read < _LITTLE * size,
            f"the new agent has locked {format_bytes(locked)} and read {read} bytes from a disk",
        )

    def _agent_pid(self) -> int:
        identity = self._agent.identity
        assert identity is not None
        return identity.pid


def _enter_cgroup(stack: contextlib.ExitStack) -> MemoryCgroup | None:
    try:
        return stack.enter_context(memory_cgroup(name=NAME))
    except OSError:
        return None
