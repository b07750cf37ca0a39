"""`simulate --live`: an agent's decisions made again, and what its arrivals let one expect."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from modelcache_agent.inputs.records import LogError
from modelcache_agent.inputs.replay import summarize_records
from modelcache_cli.errors import CliError
from modelcache_simulator.agent_log import read_log
from modelcache_simulator.errors import SimulationError
from modelcache_simulator.live import Prediction, predict


def replay_live(logs: Iterable[Path]) -> tuple[str, bool]:
    """What to say of each log, and whether every decision of all was made again.

    Raises:
        CliError: a log cannot be read.
    """
    lines, is_alike = [], True
    for path in logs:
        try:
            records = read_log(path)
            summary = summarize_records(records)
        except SimulationError as error:
            raise CliError(str(error)) from error
        except LogError as error:
            raise CliError(f"{path}: {error}") from error
        is_alike = is_alike and summary.differences == 0
        lines += [f"{path}: {summary.describe()}", f"{path}: {_describe(predict(records))}"]
    return "".join(f"{line}\n" for line in lines), is_alike


def _describe(found: Prediction | None) -> str:
    if found is None:
        return "nobody arrived: there is nothing to predict"
    return (
        f"predicted from {found.attaches} arrivals alone: {found.predicted_loads} loads, "
        f"{found.predicted_seconds:.2f} load-seconds; measured: {found.measured_loads} loads, "
        f"{found.measured_seconds:.2f} load-seconds ({found.error:+.1%})"
    )
