"""What is remembered of a volume, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from modelcache_agent.decide.beside import Beside
from modelcache_api.manifest import ContentDigest

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """One volume of one pod.

    `cache`, `claimed_namespace` and `track` are the pod's words, not the truth. Records of older
    releases have no `track`.
    """

    volume_id: str
    pod_uid: str
    pod_namespace: str
    pod_name: str
    service_account: str
    cache: str
    claimed_namespace: str
    target_path: str
    track: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """The content that a volume shows for its whole life: its ModelVersion's uid and its digest.

    Records of older releases lack the ModelVersion's name.
    """

    uid: str
    digest: str
    name: str = ""


def encode(value: VolumeRecord | Binding) -> bytes:
    """The value as a JSON document."""
    return json.dumps(asdict(value), separators=(",", ":")).encode()


def read_record(path: Path) -> VolumeRecord | None:
    """The record, None where there is none. Raises ValueError if it is damaged."""
    document = _read(path, VolumeRecord)
    return None if document is None else VolumeRecord(**document)


def read_binding(path: Path) -> Binding | None:
    """The binding, None where there is none. Raises ValueError if it is damaged."""
    document = _read(path, Binding)
    return None if document is None else Binding(**document)


def encode_beside(versions: Iterable[Beside]) -> bytes:
    """The further versions of a volume as a JSON document."""
    return json.dumps([asdict(one) for one in versions], separators=(",", ":")).encode()


def read_beside(path: Path) -> tuple[Beside, ...]:
    """The further versions that a record names. Raises ValueError if it is damaged."""
    rows = _load(path)
    if rows is None:
        return ()
    try:
        return tuple(
            Beside(str(row["name"]), str(row["uid"]), ContentDigest(str(row["digest"])))
            for row in rows
        )
    except (TypeError, KeyError):
        raise ValueError(f"{path.name} lacks a field") from None


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return json.loads(data)


def _read(path: Path, kind: type[VolumeRecord | Binding]) -> dict[str, Any] | None:
    document = _load(path)
    if document is None:
        return None
    known = document if isinstance(document, dict) else {}
    found = {field.name: known.get(field.name, field.default) for field in fields(kind)}
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"{path.name} lacks a field")
    return found
