"""One instance on disk: its folder, who owns it, its ports, and the lock beside it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelcache_testbed.certificates import write_private
from modelcache_testbed.components import Supervisor
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.folders import state_folder
from modelcache_testbed.locks import LockHeldError, locked
from modelcache_testbed.ports import PortLedger, is_free
from modelcache_testbed.processes import ProcessIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_RECORD = "instance.json"
_SCRATCH = f"{_RECORD}.new"  # left by a kill in the middle of writing the record


@dataclass
class InstanceRecord:
    """What is remembered of an instance between two runs of the tool."""

    profile: str
    owner: dict[str, Any] | None = None
    ports: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


class Instance:
    """A folder with everything that one cluster or one object store owns."""

    def __init__(self, folder: Path) -> None:
        """Refer to an instance; nothing is created yet."""
        self.folder = folder.absolute()
        self.supervisor = Supervisor(self.folder)
        self._ledger = PortLedger(state_folder() / "ports.json")

    @property
    def exists(self) -> bool:
        """Say whether the folder holds an instance."""
        return (self.folder / _RECORD).exists()

    @contextlib.contextmanager
    def exclusively(self, *, wait: bool = True) -> Iterator[None]:
        """Hold the instance against other runs of the tool."""
        lock = self.folder.with_name(self.folder.name + ".lock")
        with locked(lock, wait=wait, remove=True):
            yield

    def create(self, record: InstanceRecord) -> None:
        """Create the folder; refuses one that holds something else."""
        if self.folder.exists() and any(e for e in self.folder.iterdir() if e.name != _SCRATCH):
            message = f"{self.folder} holds something else; name an empty or a new folder"
            raise TestbedError(message)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self.write(record)

    def read(self) -> InstanceRecord:
        """Return what is remembered."""
        try:
            return InstanceRecord(**json.loads((self.folder / _RECORD).read_text()))
        except FileNotFoundError:
            message = f"there is no instance in {self.folder}"
            raise TestbedError(message) from None

    def write(self, record: InstanceRecord) -> None:
        """Remember."""
        write_private(self.folder / _RECORD, json.dumps(asdict(record), indent=1).encode())

    def settle_ports(self, names: Iterable[str]) -> dict[str, int]:
        """Return the instance's ports, keeping earlier ones.

        All are chosen anew if none of our programs runs and a stranger sits on one of them.
        """
        record = self.read()
        wanted = list(names)
        idle = not any(map(self.supervisor.is_running, self.supervisor.recorded()))
        lost = idle and not all(map(is_free, record.ports.values()))
        if lost or set(wanted) - set(record.ports):
            record.ports = self._ledger.reserve(wanted, self.folder)
            self.write(record)
        return record.ports

    def remove(self) -> None:
        """End every process of the instance and delete its folder. Call it under the lock."""
        if not self.exists:
            return
        self.supervisor.stop_all()
        # Without its record a half-deleted folder would no longer be known as ours: it goes last.
        for entry in self.folder.iterdir():
            if entry.name == _RECORD:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        self._ledger.release(self.folder)
        shutil.rmtree(self.folder)


def current_owner() -> dict[str, Any]:
    """Return this process as the owner of an ephemeral instance."""
    return asdict(ProcessIdentity.of(os.getpid()))


def reap_abandoned(parent: Path, remove: Callable[[Instance], None]) -> list[str]:
    """Remove the ephemeral instances under ``parent`` whose owner is dead; return their names.

    Those that another process works on are left to it.
    """
    reaped = []
    for record_file in sorted(parent.glob(f"*/{_RECORD}")):
        instance = Instance(record_file.parent)
        with contextlib.suppress(LockHeldError), instance.exclusively(wait=False):
            if instance.exists and _is_abandoned(instance.read()):
                remove(instance)
                reaped.append(instance.folder.name)
    return reaped


def _is_abandoned(record: InstanceRecord) -> bool:
    return record.owner is not None and not ProcessIdentity(**record.owner).is_alive()
