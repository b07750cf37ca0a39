"""Settings of the fetch engine, each with its unit, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.decide.transfer_plan import BackoffPolicy, StallPolicy


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """How much the engine may use, and how patient it is."""

    streams: int = 4
    """Requests in flight over all jobs. More streams gain nothing on one link and cost memory."""

    max_jobs: int = 4
    """Jobs that are fetched at once; further ones wait their turn."""

    buffer_bytes: int = 128 * 1024 * 1024
    """Memory for pieces in flight (8 MiB each, at least one a stream): the engine's whole use of
    memory, whatever the files' sizes."""

    bandwidth: Bandwidth | None = None
    """Cap on body bytes over all streams; None: as fast as the link is."""

    part_pieces: int = 4
    """Pieces one request asks for. Fewer requests cost the store less CPU per byte; a crash still
    loses one piece a stream at most."""

    connect_timeout_seconds: float = 10.0
    """For each address of a name."""

    response_timeout_seconds: float = 60.0
    """Silence on a connection. The stall policy normally acts first."""

    grant_timeout_seconds: float = 60.0
    """For one answer of the grant provider."""

    refresh_margin_seconds: float = 60.0
    """Signed URLs are renewed this long before they expire: longer than one part takes."""

    skew_retry_seconds: float = 5.0
    """Least pause after RequestTimeTooSkewed: an overloaded store recovers, a wrong clock does not
    by asking again at once."""

    file_attempts: int = 6
    """Failures of one file without a newly verified piece in between, then the job fails."""

    job_attempts: int = 30
    """The same over all files of a job."""

    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    stall: StallPolicy = field(default_factory=StallPolicy)

    max_redirects: int = 5
    """A store redirects once or twice; a loop is an error."""

    progress_seconds: float = 0.5
    """Period of the progress callback."""
