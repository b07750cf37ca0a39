"""Which processes of a pod hold which versions, as they say on the volume's socket. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

MOST_VERSIONS_HELD: Final = 16
_MOST_LETTERS: Final = 64
_HIGHEST_PID: Final = 2**22


class BadHolderError(ValueError):
    """The fields are those of no holder."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process by its own number, as its container counts, and the versions that it uses.

    A process says them by uid; whoever drains the pod is told their names. Without any, it is
    attached all the same.
    """

    pid: int
    versions: tuple[str, ...] = ()


def holder_document(holder: Holder) -> dict[str, Any]:
    """The holder's fields."""
    return {"pid": holder.pid, "versions": list(holder.versions)}


def read_holder(fields: Any) -> Holder:
    """What the fields say.

    Raises:
        BadHolderError: they are none, or too many.
    """
    pid = fields.get("pid") if isinstance(fields, dict) else None
    if type(pid) is not int or not 0 <= pid <= _HIGHEST_PID:
        raise BadHolderError("`pid` must be the number of a process")
    versions = fields.get("versions")
    if not _is_list_of_names(versions):
        raise BadHolderError(f"`versions` must be a list of at most {MOST_VERSIONS_HELD} uids")
    return Holder(pid, tuple(versions))


def describe_holders(holders: Sequence[Holder]) -> str:
    """For people: who is waited for."""
    return ", ".join(
        f"process {holder.pid} ({', '.join(holder.versions) or 'attached'})" for holder in holders
    )


def _is_list_of_names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MOST_VERSIONS_HELD
        and all(isinstance(one, str) and 0 < len(one) <= _MOST_LETTERS for one in value)
    )
