"""Which contents were locked, so that an agent that starts anew locks them again at once."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from modelcache_agent.tiers.durable import write_atomically

_log = logging.getLogger(__name__)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class LockRecord:
    """A small list on disk. It holds for one life of the node's kernel, as its page cache does.

    Pages that this list does not name may be charged to a reader, who would be killed for them if
    they were locked. A list that is damaged or of an earlier boot counts as empty: what follows is
    one more read of the disk.
    """

    def __init__(self, path: Path, boot_id: str | None = None) -> None:
        self._path = path
        self._boot_id = _BOOT_ID.read_text().strip() if boot_id is None else boot_id

    def load(self) -> tuple[str, ...]:
        """The digests, in the order in which they were locked."""
        try:
            found = json.loads(self._path.read_bytes())
            boot_id, digests = found["bootId"], [str(digest) for digest in found["contents"]]
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, TypeError, KeyError):
            _log.warning("the list of locked contents is damaged and was dropped")
            return ()
        return tuple(digests) if boot_id == self._boot_id else ()

    def narrow(self, digests: Iterable[str]) -> None:
        """Replace the list by a shorter one; on a full disk by none.

        What is let go must not be named, or the next agent would lock pages of readers. A disk
        that takes no change at all is told of in the log.
        """
        try:
            self.save(digests)
        except OSError:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                _log.warning("the list of locked contents cannot be changed: %s", error.strerror)

    def save(self, digests: Iterable[str]) -> None:
        """Replace the list, durably. Raises OSError."""
        content = {"bootId": self._boot_id, "contents": list(digests)}
        write_atomically(self._path, json.dumps(content).encode())
