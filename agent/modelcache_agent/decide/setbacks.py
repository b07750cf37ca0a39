"""When a failed entry is tried again. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_api.names import Reason

if TYPE_CHECKING:
    from modelcache_api.v1alpha1.cache_node import EntrySpec

FIRST_PAUSE_SECONDS: Final = 5.0
LONGEST_PAUSE_SECONDS: Final = 300.0
# Watches lag for moments; what stays unknown is asked for in every minute.
FIRST_UNKNOWN_SECONDS: Final = 1.0
LONGEST_UNKNOWN_SECONDS: Final = 60.0
# Half a minute: until then an operator that does not know the entry yet is no failure.
_PATIENT_ATTEMPTS: Final = 5
# Bytes that are not what they should be do not heal by asking again; the source may, some day.
CONTENT_PAUSE_SECONDS: Final = 3600.0
_JITTER: Final = 0.25
_MOST_DOUBLINGS: Final = 10

CONTENT_REASONS: Final = frozenset(
    {
        Reason.NOT_A_MODEL,
        Reason.DIGEST_MISMATCH,
        Reason.UNSAFE_KEY,
        Reason.TOO_MANY_FILES,
        Reason.SOURCE_CHANGED,
        Reason.SOURCE_GONE,
    }
)
# After these the bytes fetched so far help nobody, or stand in the way. What is gone may come back
# as it was, and a hub says "gone" of what a token may not see any more.
DISCARDING_REASONS: Final = CONTENT_REASONS - {Reason.SOURCE_GONE} | {Reason.INSUFFICIENT_SPACE}


@dataclass(frozen=True, slots=True)
class Setback:
    """Why an entry failed last, and when it may be tried again (monotonic seconds).

    It holds only for the spec it happened with: a changed digest is tried at once.
    """

    reason: Reason
    message: str
    retry_at: float
    attempts: int
    source_digest: str
    content_digest: str | None

    @property
    def is_failure(self) -> bool:
        """False while it is too early to call it one."""
        return self.reason is not Reason.NOT_KNOWN_YET or self.attempts > _PATIENT_ATTEMPTS

    def concerns(self, entry: EntrySpec) -> bool:
        """True while the entry is the one that failed."""
        return (self.source_digest, self.content_digest) == (
            entry.source_digest,
            entry.content_digest,
        )


def make_setback(
    entry: EntrySpec,
    previous: Setback | None,
    reason: Reason,
    message: str,
    *,
    retry_after: float | None,
    now: float,
    jitter: float,
) -> Setback:
    """The setback after one more failure; `jitter` in [0, 1) spreads the nodes of a cluster.

    `retry_after` is the least pause in seconds; None means that only a change can help, which is
    then looked for once an hour, as after all failures of content.
    """
    same = previous is not None and previous.reason is reason and previous.concerns(entry)
    attempts = previous.attempts + 1 if same and previous is not None else 1
    doublings = min(attempts - 1, _MOST_DOUBLINGS)
    first, longest = FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
    if reason is Reason.NOT_KNOWN_YET:
        first, longest = FIRST_UNKNOWN_SECONDS, LONGEST_UNKNOWN_SECONDS
    pause = min(longest, first * 2.0**doublings)
    if retry_after is None or reason in CONTENT_REASONS:
        pause = CONTENT_PAUSE_SECONDS
    elif retry_after > pause:
        pause = retry_after
    return Setback(
        reason=reason,
        message=message,
        retry_at=now + pause * (1.0 + _JITTER * jitter),
        attempts=attempts,
        source_digest=entry.source_digest,
        content_digest=entry.content_digest,
    )
