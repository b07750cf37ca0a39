"""Many runs at once, each in a process of its own, and what they show together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

from modelcache_agent.decide.policies import POLICIES, EvictionPolicy, find_policy
from modelcache_simulator.agent_log import SUFFIX, list_requests, read_log
from modelcache_simulator.belady import BELADY, Belady, list_next_attaches
from modelcache_simulator.catalogue import Catalogue, Relation, draw_sizes
from modelcache_simulator.errors import SimulationError
from modelcache_simulator.replay import NodePlan, replay
from modelcache_simulator.sessions import Event, follow_sessions
from modelcache_simulator.tally import Hour, Summary
from modelcache_simulator.trace import Request, count_models, read_requests


@dataclass(frozen=True, slots=True)
class Study:
    """What is compared on one trace: every policy on every node, with every seed's sizes.

    `capacities` are nodes: bytes by tier, and how they were written.
    """

    trace: Path
    idle_seconds: float
    capacities: Mapping[str, Mapping[str, int]]
    policies: Sequence[str]
    catalogue: Catalogue
    relation: Relation = Relation.INDEPENDENT
    seeds: int = 1
    protects_attached: bool = True


class Run(NamedTuple):
    """One run of a study, by what distinguishes it."""

    capacity: str
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class Result:
    """What one run showed. `hours` by their number since 1970."""

    run: Run
    summary: Summary
    hours: Mapping[int, Hour]


def list_runs(study: Study) -> tuple[Run, ...]:
    """All runs; the one that knows the future is among them, as the bound.

    Raises:
        SimulationError: a policy is none, or seeds would change nothing.
    """
    for name in study.policies:
        try:
            find_policy(name)
        except ValueError as error:
            raise SimulationError(str(error)) from error
    policies = [*dict.fromkeys(study.policies), BELADY]
    return tuple(Run(*parts) for parts in product(study.capacities, policies, range(study.seeds)))


def find_sizes(study: Study) -> tuple[list[dict[str, int]], int]:
    """The sizes for each seed, and how many of the trace's models have theirs drawn.

    Raises:
        SimulationError: the trace is empty or wrong, or there is nothing to draw for many seeds.
    """
    counts = count_models(_read(study.trace))
    if not counts:
        raise SimulationError(f"the trace {study.trace} has no request")
    drawn = len(counts.keys() - study.catalogue.sizes.keys())
    if study.seeds > 1 and not drawn:
        raise SimulationError(
            "the catalogue states the size of every model of the trace, so that seeds change "
            "nothing: leave out --seeds"
        )
    sizes = [
        draw_sizes(counts, study.catalogue.sizes, study.relation, seed)
        for seed in range(study.seeds)
    ]
    return sizes, drawn


def run_study(
    study: Study, sizes: Sequence[Mapping[str, int]], processes: int | None = None
) -> Iterator[Result]:
    """The results as they come, in any order."""
    with ProcessPoolExecutor(processes) as pool:
        pending = [pool.submit(run_one, study, run, sizes[run.seed]) for run in list_runs(study)]
        try:
            for done in as_completed(pending):
                yield done.result()
        finally:
            for future in pending:
                future.cancel()


def run_one(study: Study, run: Run, sizes: Mapping[str, int]) -> Result:
    """One run, from the trace's file."""

    def events() -> Iterator[Event]:
        return follow_sessions(_read(study.trace), study.idle_seconds)

    plan = NodePlan(
        study.capacities[run.capacity],
        sizes,
        study.catalogue.costs,
        protects_attached=study.protects_attached,
    )
    tally = replay(events(), plan, find_runnable(run.policy, events))
    return Result(run, tally.summarise(), tally.hours)


def _read(trace: Path) -> Iterator[Request]:
    if trace.suffix == SUFFIX:
        return list_requests(read_log(trace))
    return read_requests(trace)


def find_runnable(name: str, events: Callable[[], Iterator[Event]]) -> EvictionPolicy:
    """The agent's policy of that name, or the one that reads the trace first."""
    if name == BELADY:
        return Belady(list_next_attaches(events()))
    return POLICIES[name]
