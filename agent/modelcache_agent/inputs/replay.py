"""Makes the decisions of an input log again, by the very same planner. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import EvictionPolicy, find_policy
from modelcache_agent.inputs.records import (
    Decided,
    Happening,
    Header,
    LogError,
    Record,
    hash_plan,
    read_records,
)


@dataclass(frozen=True, slots=True)
class Replayed:
    """One decision, made again."""

    at: float
    expected: str
    made: str

    @property
    def is_equal(self) -> bool:
        """True if the same was decided."""
        return self.expected == self.made


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole log, and the release that wrote it.

    `first_difference` is None if every decision was made again.
    """

    agent_version: str
    decisions: int
    attaches: int
    differences: int
    first_difference: Replayed | None

    def describe(self) -> str:
        """One sentence for people."""
        counted = f"{self.decisions} decisions, {self.attaches} attaches"
        first = self.first_difference
        if first is None:
            return f"{counted}: all decided alike"
        return (
            f"{counted}: {self.differences} decided otherwise, the first at {first.at:.3f} "
            f"({first.made} in place of {first.expected}): agent {self.agent_version} wrote it, "
            "and each release decides in its own way: replay it with that one; if this is that "
            "one, the log is damaged"
        )


def replay(records: Iterable[Record]) -> Iterator[Replayed]:
    """Each decision, made again.

    Raises:
        LogError: a decision comes before the line that says by which policy.
    """
    policy: EvictionPolicy | None = None
    for record in records:
        match record:
            case Header(name):
                policy = find_policy(name)
            case Decided(at, world, expected):
                if policy is None:
                    raise LogError("the first line names no policy: the beginning is missing")
                yield Replayed(at, expected, hash_plan(make_plan(world, policy)))


def summarize(lines: Iterable[str]) -> Summary:
    """The outcome for all lines of a log.

    Raises:
        LogError: it cannot be read.
    """
    return summarize_records(tuple(read_records(lines)))


def summarize_records(records: Sequence[Record]) -> Summary:
    """The outcome for all records of a log.

    Raises:
        LogError: its beginning is missing.
    """
    outcomes = list(replay(records))
    differing = [outcome for outcome in outcomes if not outcome.is_equal]
    attaches = sum(isinstance(one, Happening) and one.kind == "attach" for one in records)
    headers = (one.agent_version for one in records if isinstance(one, Header))
    first = differing[0] if differing else None
    return Summary(next(headers, ""), len(outcomes), attaches, len(differing), first)
