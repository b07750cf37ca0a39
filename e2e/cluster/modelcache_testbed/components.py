"""Starting and stopping the programs of one instance, recorded in its folder."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modelcache_testbed.errors import ComponentFailedError, TestbedError
from modelcache_testbed.processes import read_pid_file, start_detached
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

SHOWN_LOG_LINES = 15


@dataclass(frozen=True)
class Component:
    """One program of an instance: how it is started and how it says that it is ready.

    ``before_start`` brings about what the program needs of those that run already.
    """

    name: str
    argv: tuple[str, ...]
    is_ready: Callable[[], bool]
    ready_seconds: float = 60
    stop_seconds: float = 10
    environment: Mapping[str, str] = field(default_factory=dict)
    before_start: Callable[[], None] = lambda: None


class Supervisor:
    """The running components of one folder. Holds no state but the files in it."""

    def __init__(self, folder: Path) -> None:
        """Keep pid files and logs under ``folder``."""
        self._folder = folder
        self._pids = folder / "run"
        self._logs = folder / "logs"

    def log_file(self, name: str) -> Path:
        """Return where a component writes its output."""
        return self._logs / f"{name}.log"

    def pid_of(self, name: str) -> int | None:
        """Return the pid of a running component, else None."""
        identity = read_pid_file(self._pid_file(name))
        return identity.pid if identity and identity.is_alive() else None

    def is_running(self, name: str) -> bool:
        """Say whether a component's process lives."""
        return self.pid_of(name) is not None

    def recorded(self) -> list[str]:
        """Return the names of all components started and not stopped, earliest start first."""
        files = sorted(self._pids.glob("*.pid"), key=lambda file: file.stat().st_mtime_ns)
        return [file.stem for file in files]

    def start(self, components: Sequence[Component]) -> None:
        """Start those that do not run, then wait until all are ready."""
        for component in components:
            if not self.is_running(component.name):
                self._launch(component)
        for component in components:
            self._await_ready(component)

    def stop(self, name: str, *, grace_seconds: float = 10) -> None:
        """End a component if it runs; returns when it is gone."""
        identity = read_pid_file(self._pid_file(name))
        if identity:
            identity.end(grace_seconds=grace_seconds)
        self._pid_file(name).unlink(missing_ok=True)

    def stop_all(self, *, grace_seconds: float = 2) -> None:
        """End every recorded component, the last started first: a server outlives its users."""
        for name in reversed(self.recorded()):
            self.stop(name, grace_seconds=grace_seconds)

    def _pid_file(self, name: str) -> Path:
        return self._pids / f"{name}.pid"

    def _launch(self, component: Component) -> None:
        self._pids.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        self._pid_file(component.name).unlink(missing_ok=True)
        component.before_start()
        start_detached(
            component.argv,
            pid_file=self._pid_file(component.name),
            log_file=self.log_file(component.name),
            folder=self._folder,
            environment={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": str(self._folder),
                **component.environment,
            },
        )

    def _await_ready(self, component: Component) -> None:
        try:
            wait_until(
                lambda: self._is_ready(component),
                seconds=component.ready_seconds,
                what="ready",
            )
        except TestbedError as error:
            raise ComponentFailedError(self._failure(component, str(error))) from None

    def _is_ready(self, component: Component) -> bool:
        if not self.is_running(component.name):
            message = "it ended"
            raise ComponentFailedError(message)
        return component.is_ready()

    def _failure(self, component: Component, cause: str) -> str:
        log = self.log_file(component.name)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        shown = "\n".join(f"  {line}" for line in lines[-SHOWN_LOG_LINES:])
        return f"{component.name} did not start ({cause}); the end of {log}:\n{shown}"
