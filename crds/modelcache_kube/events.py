"""Bodies of events.k8s.io/v1 Events: what happened to one object, for people."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from modelcache_kube.resources import EVENTS
from modelcache_kube.timestamps import format_micro_time

# The API's own limits.
_MAX_NOTE_BYTES: Final = 1024
_MAX_INSTANCE: Final = 128
_HASH_LENGTH: Final = 16
_MAX_NAME: Final = 253
# Where events of cluster-scoped objects live.
_DEFAULT_NAMESPACE: Final = "default"


class EventType(StrEnum):
    """Normal informs, Warning asks somebody to look."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One transition of one object.

    `regarding` is an ObjectReference (apiVersion, kind, name, namespace, uid). `count` above one
    says that the same transition was seen again: the event is updated instead of created.
    """

    regarding: Mapping[str, str]
    type: EventType
    reason: str
    note: str
    action: str
    controller: str
    instance: str
    count: int = 1

    @property
    def namespace(self) -> str:
        """Namespace of the event: the object's, or `default` for a cluster-scoped object."""
        return self.regarding.get("namespace") or _DEFAULT_NAMESPACE

    @property
    def name(self) -> str:
        """The same for the same transition of the same object, so that repeats find it."""
        identity = [dict(sorted(self.regarding.items())), self.type, self.reason, self.note]
        digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:_HASH_LENGTH]
        readable = self.regarding.get("name", "")[: _MAX_NAME - _HASH_LENGTH - 1].rstrip(".-")
        return f"{readable}.{digest}" if readable else digest


def build_event(event: Event, now: datetime) -> dict[str, Any]:
    """The whole body of a new event."""
    note = event.note.encode()[:_MAX_NOTE_BYTES].decode(errors="ignore")
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": event.name, "namespace": event.namespace},
        "eventTime": format_micro_time(now),
        "regarding": dict(event.regarding),
        "type": event.type.value,
        "reason": event.reason,
        "note": note,
        "action": event.action,
        "reportingController": event.controller,
        "reportingInstance": event.instance[:_MAX_INSTANCE],
    }


def build_series_patch(event: Event, now: datetime) -> dict[str, Any]:
    """The merge patch that says: seen again."""
    return {"series": {"count": max(event.count, 2), "lastObservedTime": format_micro_time(now)}}
