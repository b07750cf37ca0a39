"""Which ModelVersion a ModelCache stands for at this moment."""

from __future__ import annotations

from modelcache_api.names import Track
from modelcache_operator.assignments import Assignments
from modelcache_operator.decide.demand import Want
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
    if named is not None and may_be_held(named):
        return named
    placed = assignments.of(key)
    held = world.model_version(placed.version) if placed else None
    return held if held is not None and may_be_held(held) else None


def find_named_canary(cache: ModelCacheView, world: ObservedWorld) -> ModelVersionView | None:
    """The ModelVersion that the spec names as canary, if it exists."""
    key = _canary_key(cache)
    version = world.model_version_named(key) if key is not None else None
    return None if version is None or version.is_deleted else version


def find_held_canary(key: ObjectKey, world: ObservedWorld) -> ModelVersionView | None:
    """The named canary, if it may be held."""
    cache = world.model_cache(key)
    if cache is None or cache.is_deleted:
        return None
    canary = find_named_canary(cache, world)
    return canary if canary is not None and may_be_held(canary) else None


def find_wanted_version(
    want: Want, world: ObservedWorld, assignments: Assignments
) -> ModelVersionView | None:
    """What pods of a track are given."""
    key, track = want
    if track is Track.CANARY:
        return find_held_canary(key, world)
    return find_held_version(key, world, assignments)


def find_canary_weight(cache: ModelCacheView | None, canary: Uid | None) -> int:
    """The weight in force of that version: what the status that was written last says."""
    if cache is None or canary is None or cache.status.rollout is None:
        return 0
    is_its = cache.status.rollout.canary_uid == canary
    traffic = cache.status.traffic if is_its else None
    return traffic.canary if traffic is not None else 0


def is_unreadable(key: ObjectKey, version: Uid, world: ObservedWorld) -> bool:
    """True if what the ModelCache stands for, by that version until now, cannot be known."""
    unreadable = world.unreadable
    if unreadable.has_cache(key) or version in unreadable.versions:
        return True
    cache = world.model_cache(key)
    return cache is not None and find_unreadable_name(cache, world) is not None


def find_unreadable_name(cache: ModelCacheView, world: ObservedWorld) -> str | None:
    """The name of a version that the spec names, and that is there and not understood."""
    keys = (_named_key(cache), _canary_key(cache))
    unreadable = world.unreadable
    return next((key.name for key in keys if key and unreadable.has_version(key)), None)


def _named_key(cache: ModelCacheView) -> ObjectKey:
    return ObjectKey(cache.key.namespace, cache.spec.stable.model_version)


def _canary_key(cache: ModelCacheView) -> ObjectKey | None:
    canary = cache.spec.canary
    return None if canary is None else ObjectKey(cache.key.namespace, canary.model_version)


def may_be_held(version: ModelVersionView) -> bool:
    """True once it is resolved, unless it is withdrawn."""
    return version.status.source_digest is not None and describe_withdrawal(version) is None
