"""Pieces that are here already become the beginning of a transfer.

They are named in its journal: the engine proves each by its hash, as after a restart, and fetches
the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from modelcache_agent.fetch.journal import Journal, JournalHeader
from modelcache_agent.fetch.partial import JOURNAL_SUFFIX
from modelcache_agent.tiers.durable import temporary_for

_log = logging.getLogger(__name__)


def give_head_start(
    partial: Path,
    header: JournalHeader,
    copy: Callable[[Path], dict[int, bytes]],
    must_stop: Callable[[], bool],
    what: str,
) -> None:
    """Make the partial file of what `copy` writes into the file that it is given.

    It returns the blake3 of each piece. What cannot be copied is fetched, so nothing here is an
    error; `what` says in the log what became of the pieces.
    """
    temporary = temporary_for(partial)
    try:
        partial.parent.mkdir(mode=0o700, exist_ok=True)
        copied = copy(temporary)
        if must_stop() or not copied:
            temporary.unlink(missing_ok=True)
            return
        # The journal first: a partial file without one would be thrown away.
        journal = Journal(partial.with_suffix(JOURNAL_SUFFIX), header)
        try:
            journal.resume(copied)
        finally:
            journal.close()
        temporary.rename(partial)
    except OSError as error:
        _log.warning("uid=%s nothing is %s: %s", header.uid, what, error.strerror)
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        return
    _log.info("uid=%s pieces=%d %s", header.uid, len(copied), what)
