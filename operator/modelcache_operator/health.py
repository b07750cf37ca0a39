"""What makes /healthz red: a restart may help."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from modelcache_operator.adapters.api_health import ApiHealth
from modelcache_operator.adapters.relist import Relister
from modelcache_operator.adapters.watch_health import WatchHealth
from modelcache_operator.config import OperatorConfig
from modelcache_operator.kopf_app import KopfInformer

# Shorter silences are an ordinary busy moment.
_SHORTEST_PAUSE_SECONDS: Final = 5.0


class Health:
    """Judges what the parts have noticed, when it is asked."""

    def __init__(
        self,
        api: ApiHealth,
        watches: WatchHealth,
        *,
        limit_seconds: float,
        is_watching: Callable[[], bool],
        is_waiting_for_crds: Callable[[], bool],
    ) -> None:
        self._api = api
        self._watches = watches
        self._limit_seconds = limit_seconds
        self._is_watching = is_watching
        self._is_waiting_for_crds = is_waiting_for_crds

    def note_request(self, verb: str, resource: str, code: int) -> None:
        """One answer of the API server to our own client; code 0 is none."""
        self._api.note(code)
        if verb != "watch":
            return
        if code == HTTPStatus.OK:
            self._watches.opened(resource)
        else:
            self._watches.closed(resource)

    def complain(self) -> str | None:
        """What is wrong and what cures it, or None."""
        silent, limit = self._api.silent_seconds, self._limit_seconds
        if silent > limit:
            return f"the API server has not answered for {silent:.0f} s (--silence-limit)"
        if not self._is_watching():
            return "the watches have ended"
        if self._is_waiting_for_crds():
            # They come by somebody's hand, not by a restart.
            return None
        return self._watches.complain(limit)


def make_health(
    config: OperatorConfig,
    monotonic: Callable[[], float],
    watches: WatchHealth,
    informer: KopfInformer,
    relister: Relister,
) -> Health:
    """The health of these parts. After an outage everything is listed."""
    # Something is asked at least once in that time: the Leases are listed.
    pause = max(_SHORTEST_PAUSE_SECONDS, 1.5 * config.lease_list_interval_seconds)
    return Health(
        ApiHealth(monotonic, relister.ask, longest_pause_seconds=pause),
        watches,
        limit_seconds=config.silence_limit_seconds,
        is_watching=lambda: informer.is_alive,
        is_waiting_for_crds=lambda: relister.is_waiting_for_crds,
    )
