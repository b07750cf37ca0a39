"""Which ModelVersion a ModelCache stands for at this moment."""

from __future__ import annotations

from modelcache_operator.assignments import Assignments
from modelcache_operator.decide.withdrawal import describe_withdrawal
from modelcache_operator.decide.world import ModelCacheView, ModelVersionView, ObjectKey, Uid
from modelcache_operator.ports.world import ObservedWorld


def find_named_version(cache: ModelCacheView, world: ObservedWorld) -> ModelVersionView | None:
    """The ModelVersion that the spec names, if it exists."""
    version = world.model_version_named(_named_key(cache))
    return None if version is None or version.is_deleted else version


def find_held_version(
    key: ObjectKey, world: ObservedWorld, assignments: Assignments
) -> ModelVersionView | None:
    """The named version once it may be held; until then the one that is held already."""
    cache = world.model_cache(key)
    if cache is None or cache.is_deleted:
        return None
    named = find_named_version(cache, world)
    if named is not None and _may_be_held(named):
        return named
    placed = assignments.of(key)
    held = world.model_version(placed.version) if placed else None
    return held if held is not None and _may_be_held(held) else None


def is_unreadable(key: ObjectKey, version: Uid, world: ObservedWorld) -> bool:
    """True if what the ModelCache stands for, by that version until now, cannot be known."""
    unreadable = world.unreadable
    if unreadable.has_cache(key) or version in unreadable.versions:
        return True
    cache = world.model_cache(key)
    return cache is not None and unreadable.has_version(_named_key(cache))


def _named_key(cache: ModelCacheView) -> ObjectKey:
    return ObjectKey(cache.key.namespace, cache.spec.stable.model_version)


def _may_be_held(version: ModelVersionView) -> bool:
    return version.status.source_digest is not None and describe_withdrawal(version) is None
