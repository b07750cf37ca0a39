"""Secrets and ConfigMaps of users' namespaces, read by name and never listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from modelcache_operator.decide.world import ObjectKey


class KeyedDataForbiddenError(Exception):
    """RBAC keeps the operator from reading that object."""


@dataclass(frozen=True, slots=True)
class KeyedData:
    """The data of one Secret or ConfigMap. `revision` changes whenever the data may have."""

    data: Mapping[str, bytes] = field(repr=False)
    revision: str


class KeyedDataReader(Protocol):
    """Reads anew on each call.

    Raises KeyedDataForbiddenError; other errors of the API server pass through.
    """

    async def secret(self, key: ObjectKey) -> KeyedData | None:
        """The Secret's data, or None if there is no such Secret."""

    async def config_map(self, key: ObjectKey) -> KeyedData | None:
        """The ConfigMap's data and binaryData, or None if there is no such ConfigMap."""
