"""The API server's audit log: who asked for what, and what was denied."""

from __future__ import annotations

import collections
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OK, FORBIDDEN = 200, 403

# The components' own renewals would bury everything else.
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:kube-controller-manager", "system:kube-scheduler", "system:apiserver"]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*"]
- level: Metadata
"""


@dataclass(frozen=True)
class AuditEvent:
    """One answered request."""

    stage: str
    user: str
    user_agent: str
    verb: str
    uri: str
    resource: str
    subresource: str
    namespace: str
    name: str
    status: int

    @property
    def ends_a_watch(self) -> bool:
        """Say whether this is the second line of a watch, which leaves one when it begins too."""
        return self.verb == "watch" and self.stage == "ResponseComplete" and self.status == OK

    @classmethod
    def parse(cls, line: str) -> AuditEvent:
        """Read one line of the log."""
        event: dict[str, Any] = json.loads(line)
        target = event.get("objectRef", {})
        return cls(
            stage=event["stage"],
            user=event["user"].get("username", ""),
            user_agent=event.get("userAgent", ""),
            verb=event["verb"],
            uri=event["requestURI"],
            resource=target.get("resource", ""),
            subresource=target.get("subresource", ""),
            namespace=target.get("namespace", ""),
            name=target.get("name", ""),
            status=event.get("responseStatus", {}).get("code", 0),
        )


class AuditLog:
    """Reads the log of one API server. Positions are bytes into the file."""

    def __init__(self, file: Path) -> None:
        """Read from ``file``, whether it exists yet or not."""
        self.file = file

    def position(self) -> int:
        """Return the end of the log now; pass it as ``since`` to see only what follows."""
        return self.file.stat().st_size if self.file.exists() else 0

    def events(self, since: int = 0) -> Iterator[AuditEvent]:
        """Yield the requests after a position, watches once when they begin and once at the end.

        A line that is still being written is left for the next call, and one that was at the
        position began before it.
        """
        if not self.file.exists():
            return
        with self.file.open("rb") as log:
            log.seek(max(0, since - 1))
            if since and log.read(1) != b"\n":
                log.readline()
            for line in log:
                if line.endswith(b"\n"):
                    yield AuditEvent.parse(line.decode())

    def denied(self, since: int = 0) -> list[AuditEvent]:
        """Return the requests that were forbidden."""
        return [event for event in self.events(since) if event.status == FORBIDDEN]

    def count_by_user(self, since: int = 0) -> dict[str, int]:
        """Return the number of requests of each user."""
        return self._count(lambda event: event.user, since)

    def count_by_user_agent(self, since: int = 0) -> dict[str, int]:
        """Return the number of requests of each user agent."""
        return self._count(lambda event: event.user_agent, since)

    def _count(self, key: Callable[[AuditEvent], str], since: int) -> dict[str, int]:
        counted = (event for event in self.events(since) if not event.ends_a_watch)
        return dict(collections.Counter(key(event) for event in counted))
