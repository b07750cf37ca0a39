"""Finds where a part is read from, and asks the operator anew where nobody has it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from modelcache_agent.fetch.refusal import RefusalError
from modelcache_agent.fetch.routes import NoRoute, SourceRoute

if TYPE_CHECKING:
    from modelcache_agent.fetch.file_state import FileState
    from modelcache_agent.fetch.grants import GrantDesk
    from modelcache_agent.fetch.job_state import JobState
    from modelcache_agent.fetch.routes import Answer, PeerRoute, Route, Routes
    from modelcache_agent.fetch.source_gate import SourceGate

_log = logging.getLogger(__name__)
# Between two looks whether the source may be read under the fleet's limits.
_CLOSED_SECONDS: Final = 0.5


class RouteFinder:
    """For the stream threads. Without `routes` everything is read from the source."""

    def __init__(
        self, desk: GrantDesk, routes: Routes | None, gate: SourceGate | None = None
    ) -> None:
        self._desk = desk
        self._routes = routes
        self._gate = gate

    def find(self, job: JobState, file: FileState, piece: int) -> Route:
        """Where the piece is read from now. Blocks while the operator is asked."""
        route = self._choose(job, file, piece)
        if isinstance(route, SourceRoute) and not self._may_read(job.spec.uid):
            return NoRoute(_CLOSED_SECONDS)
        return route

    def _may_read(self, uid: str) -> bool:
        return self._gate is None or self._gate.may_read(uid)

    def _choose(self, job: JobState, file: FileState, piece: int) -> Route:
        uid = job.spec.uid
        if self._routes is None or file.expected_piece(piece) is None:
            return SourceRoute()
        route = self._routes.choose(uid, file.path)
        if isinstance(route, NoRoute) and route.must_renew:
            try:
                self._desk.renew(job, file)
            except RefusalError as error:
                _log.warning("uid=%s: no word on who reads the source: %s", uid, error)
                self._routes.allow_source(uid)
            route = self._routes.choose(uid, file.path)
        return route

    def report(self, uid: str, route: PeerRoute, answer: Answer, message: str) -> None:
        """What came of asking another node."""
        if self._routes is not None:
            self._routes.report(uid, route, answer, message)
