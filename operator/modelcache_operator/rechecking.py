"""Looks at the sources of resolved versions again: once for all nodes, each at its own time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from modelcache_api.durations import parse_duration
from modelcache_api.manifest import SourceManifest
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.source import Source
from modelcache_operator.decide.source_check import (
    UNCHANGED,
    SourceFinding,
    Standing,
    conclude,
    count_missed,
    is_pinned,
    is_same_transport,
    judge_listing,
    judge_refusal,
    period,
    seconds_owed_at_first,
    seconds_until_first,
    seconds_until_next,
    spread_of,
)
from modelcache_operator.decide.version_status import (
    RefusedSource,
    ResolvedSource,
    SourceCheck,
    check_in_status,
    source_in_status,
)
from modelcache_operator.decide.world import ModelVersionView, Uid
from modelcache_operator.keys import Key, version_key
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.manifests import ManifestDamagedError, Manifests
from modelcache_operator.ports.sources import SourceError, Sources
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.workqueue import Requeue, WorkQueue

_log = logging.getLogger(__name__)

# A check that finds nothing new is written at most this often: a new leader may check earlier.
_RECORD_SECONDS: Final = 3600.0
# A namespace has one look at a time, and not for long: a slow source holds up its own alone.
_TURN_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Watch:
    """What is remembered of one version. Times are monotonic, so that no clock's step matters.

    The next look is made at `due_at`; by the interval it is owed since `owed_at`, which is earlier
    if nobody was there to make it.
    """

    source: Source
    check: SourceCheck | None
    standing: Standing
    due_at: float
    owed_at: float
    answered_at: float
    recorded_at: float


@dataclass(frozen=True, slots=True)
class Rechecker:
    """Compares identities only; no byte of a model is read. `queue` holds only versions.

    What it finds is written by the VersionReconciler, which asks `current`.
    """

    world: ObservedWorld
    sources: Sources
    manifests: Manifests
    clock: Clock
    queue: WorkQueue
    uniform: Callable[[float, float], float]
    on_outcome: Callable[[Key], None]
    on_missed: Callable[[int], None]
    _watches: dict[Uid, _Watch] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)

    def begin_term(self) -> None:
        """Forget everything: what another leader found is in the statuses."""
        self._watches.clear()

    def current(
        self, version: ModelVersionView, source: ResolvedSource | RefusedSource | None
    ) -> SourceCheck | None:
        """What is known of the source of a resolved version. Sees to it that it is looked at."""
        if not isinstance(source, ResolvedSource) or is_pinned(version.spec):
            self._watches.pop(version.uid, None)
            return None
        watch = self._watches.get(version.uid) or self._begin(version)
        if watch.source != version.spec.source:
            watch = self._follow_spec(watch, version)
        self._watches[version.uid] = watch
        wait = watch.due_at - self.clock.monotonic()
        self.queue.add(version_key(version.key), after_seconds=wait)
        return watch.check

    def forget_gone(self) -> None:
        """Drop what is remembered of versions that are gone."""
        for uid in tuple(self._watches):
            if self.world.model_version(uid) is None:
                del self._watches[uid]

    async def reconcile(self, key: Key) -> Requeue:
        """One look, if one is due."""
        version = self.world.model_version_named(key.object_key)
        watch = self._watches.get(version.uid) if version is not None else None
        if version is None or version.is_deleted or watch is None or is_pinned(version.spec):
            return Requeue()
        resolved = source_in_status(version)
        if resolved is None:
            # What has just been resolved is seen in a moment, and asked for again then.
            return Requeue()
        wait = watch.due_at - self.clock.monotonic()
        if wait > 0:
            return Requeue(wait)
        namespace = version.key.namespace
        if namespace in self._busy:
            return Requeue(_TURN_SECONDS)
        late = self.clock.monotonic() - watch.owed_at
        self._busy.add(namespace)
        try:
            look, retry_after = await self._look(version, resolved.source_digest)
        finally:
            self._busy.discard(namespace)
        if self._watches.get(version.uid) is not watch:
            # The spec has changed meanwhile, and the next look is asked for.
            return Requeue()
        self.on_missed(count_missed(_interval(version), late, spread_of(version.uid)))
        after = self._take(version, watch, look, retry_after)
        self._watches[version.uid] = after
        if after.check != watch.check:
            self.on_outcome(key)
        return Requeue(after.due_at - self.clock.monotonic())

    def _begin(self, version: ModelVersionView) -> _Watch:
        """Of a version that has just been resolved, or was checked last by another process."""
        now, interval, spread = self.clock.monotonic(), _interval(version), spread_of(version.uid)
        source = version.spec.source
        if source_in_status(version) is None:
            check = SourceCheck(UNCHANGED, self.clock.now())
            due_at = now + period(interval, spread)
            return _Watch(source, check, Standing(UNCHANGED), due_at, due_at, now, now)
        known, age = check_in_status(version), self._age(version)
        is_urgent = version.status.observed_generation != version.generation or (
            known is not None and known.finding.is_current is None
        )
        wait = seconds_until_first(interval, age, spread, is_urgent=is_urgent)
        owed_at = now + wait
        if age is not None and not is_urgent:
            owed = seconds_owed_at_first(interval, age, spread, _RECORD_SECONDS)
            owed_at = min(owed_at, now - owed)
        at = now - max(age or 0.0, 0.0)
        recorded_at = at if age is not None and age >= 0 else -float("inf")
        standing = Standing(known.finding if known else None)
        return _Watch(source, known, standing, now + wait, owed_at, at, recorded_at)

    def _age(self, version: ModelVersionView) -> float | None:
        """Seconds since the last check by the wall clock: all that a new process has."""
        checked_at = version.status.last_check_time
        if checked_at is None:
            return None
        age = (self.clock.now() - checked_at).total_seconds()
        if age < 0:
            _log.warning(
                "%s was last checked at %s, which is in the future: taken for now; compare clocks",
                version.key,
                checked_at.isoformat(),
            )
        return age

    def _follow_spec(self, watch: _Watch, version: ModelVersionView) -> _Watch:
        """Another way to the store is tried at once; another interval counts from the last look."""
        source, now = version.spec.source, self.clock.monotonic()
        if not is_same_transport(watch.source, source):
            standing = replace(watch.standing, failures=0, doubts=0)
            return replace(watch, source=source, standing=standing, due_at=now, owed_at=now)
        due_at = watch.answered_at + period(_interval(version), spread_of(version.uid))
        if not watch.standing.is_settled:
            due_at = min(due_at, watch.due_at)
        return replace(watch, source=source, due_at=due_at, owed_at=max(due_at, now))

    async def _look(
        self, version: ModelVersionView, resolved: str
    ) -> tuple[SourceFinding, float | None]:
        """What is found, and after which time the source wants to be asked again."""
        uri = version.spec.source.uri
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                found = await self.sources.resolve(version)
        except SourceError as error:
            return judge_refusal(uri, error.reason, error.message), error.retry_after_seconds
        except TimeoutError:
            return judge_refusal(uri, Reason.SOURCE_ERROR, "the listing does not end"), 0.0
        kept = None if found.digest == resolved else await self._kept(version.uid, resolved)
        listed = None if kept is None else kept.listed
        return judge_listing(version.key.name, resolved, listed, found), None

    async def _kept(self, uid: Uid, resolved: str) -> SourceManifest | None:
        try:
            return await self.manifests.get_source(uid, resolved)
        except ManifestDamagedError:
            return None

    def _take(
        self,
        version: ModelVersionView,
        watch: _Watch,
        look: SourceFinding,
        retry_after: float | None,
    ) -> _Watch:
        now = self.clock.monotonic()
        standing = conclude(watch.standing, look)
        wait = seconds_until_next(
            _interval(version),
            standing,
            spread_of(version.uid),
            retry_after,
            self.uniform(0.8, 1.2),
        )
        if standing.failures:
            _log.info("%s: reason=%s %s", version.key, look.reason, look.message)
        checked_at = watch.check.checked_at if watch.check else None
        answered_at, recorded_at = watch.answered_at, watch.recorded_at
        if standing.is_settled:
            answered_at = now
            is_new = standing.finding != watch.standing.finding
            if is_new or now - recorded_at >= _RECORD_SECONDS:
                checked_at, recorded_at = self.clock.now(), now
        check = SourceCheck(standing.finding, checked_at) if standing.finding else None
        due_at = now + wait
        return _Watch(watch.source, check, standing, due_at, due_at, answered_at, recorded_at)


def _interval(version: ModelVersionView) -> float:
    return float(parse_duration(version.spec.source.recheck_interval))
