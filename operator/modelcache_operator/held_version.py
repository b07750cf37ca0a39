"""Which ModelVersion a ModelCache stands for at this moment."""

from __future__ import annotations

from modelcache_operator.assignments import Assignments
from modelcache_operator.decide.world import ModelCacheView, ModelVersionView, ObjectKey
from modelcache_operator.ports.world import ObservedWorld


def find_named_version(cache: ModelCacheView, world: ObservedWorld) -> ModelVersionView | None:
    """The ModelVersion that the spec names, if it exists."""
    name = ObjectKey(cache.key.namespace, cache.spec.stable.model_version)
    version = world.model_version_named(name)
    return None if version is None or version.is_deleted else version


def find_held_version(
    key: ObjectKey, world: ObservedWorld, assignments: Assignments
) -> ModelVersionView | None:
    """The named version once it is resolved; until then the one that is held already."""
    cache = world.model_cache(key)
    if cache is None or cache.is_deleted:
        return None
    named = find_named_version(cache, world)
    if named is not None and named.status.source_digest is not None:
        return named
    placed = assignments.of(key)
    return world.model_version(placed.version) if placed else None
