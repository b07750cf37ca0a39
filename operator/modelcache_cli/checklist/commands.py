"""The command line of `checklist`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from modelcache_api.durations import parse_duration
from modelcache_api.names import METRIC_PREFIX_AGENT
from modelcache_cli.checklist.observing import observe
from modelcache_cli.checklist.probes import judge
from modelcache_cli.checklist.trial import TrialModel, try_model
from modelcache_cli.checklist.values import Outcome, Scraped, Trial, Verdict
from modelcache_cli.cluster import ClusterChoice, open_cluster
from modelcache_cli.errors import CliError
from modelcache_cli.options import (
    SYSTEM_NAMESPACE,
    ContextOption,
    KubeconfigOption,
    SystemOption,
    ViewOption,
    run,
)
from modelcache_cli.output import View, render
from modelcache_kube import KubeClient, KubeError
from modelcache_kube.timestamps import utc_now
from modelcache_operator.adapters.prometheus import PrometheusServer
from modelcache_operator.decide.rollout import Trouble

checklist_app = typer.Typer()
# One series of each agent, whatever it holds.
_QUERY: Final = f"count({METRIC_PREFIX_AGENT}node_labels) or vector(0)"
_MEND: Final = "mend what it names, and look again"
_COLOURS: Final = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.UNKNOWN: "yellow"}


@checklist_app.command()
def checklist(  # noqa: PLR0913, PLR0917 - one parameter for each option
    test_uri: Annotated[
        str | None, typer.Option(help="Source of a small model to fetch, verify and delete.")
    ] = None,
    test_endpoint: Annotated[str | None, typer.Option(help="Its source.endpoint.")] = None,
    test_secret: Annotated[
        str | None, typer.Option(help="Name of the Secret that its source needs.")
    ] = None,
    timeout: Annotated[str, typer.Option(help="How long it may take.")] = "5m",
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="For the test model. Default: context's."),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="Address of the Prometheus server that scrapes.")
    ] = None,
    prometheus_ca_file: Annotated[
        Path | None, typer.Option(help="CA of that server, as PEM. Default: the system's.")
    ] = None,
    prometheus_token_file: Annotated[
        Path | None, typer.Option(help="Bearer token for that server.")
    ] = None,
    system_namespace: SystemOption = SYSTEM_NAMESPACE,
    output: ViewOption = View.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Look whether the cluster is ready to go live: each probe passes, or says what to do.

    Reads only, but for the test model of --test-uri. Fails if a probe does; what could not be
    looked at is Unknown, and neither passes nor fails.
    """
    choice = ClusterChoice(kubeconfig, context, namespace)
    server = None
    if prometheus is not None:
        server = PrometheusServer(prometheus, prometheus_ca_file, prometheus_token_file)

    async def work() -> tuple[Verdict, ...]:
        seconds = _parse_timeout(timeout)
        async with open_cluster(choice) as (kube, chosen):
            seen = await observe(kube, system_namespace, utc_now())
            if test_uri is not None:
                model = TrialModel(test_uri, chosen, seconds, test_endpoint, test_secret)
                seen = replace(seen, trial=await _try(kube, model))
        if server is not None:
            seen = replace(seen, scraped=await _ask(server))
        return judge(seen)

    verdicts = run(work())
    _print(verdicts, output)
    if any(one.outcome is Outcome.FAIL for one in verdicts):
        raise typer.Exit(1)


def _parse_timeout(text: str) -> float:
    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise CliError(f"--timeout: {error}") from error


async def _try(kube: KubeClient, model: TrialModel) -> Trial:
    """What keeps it from being tried is one verdict, and costs none of the others."""
    try:
        return await try_model(kube, model, time.monotonic)
    except (CliError, KubeError) as error:
        return Trial(is_cached=False, seconds=0, told=str(error), cure=_MEND)


async def _ask(server: PrometheusServer) -> Scraped:
    answer = await server.ask(_QUERY)
    if isinstance(answer, Trouble):
        return Scraped(trouble=answer.message)
    return Scraped(agents=round(answer))


def _print(verdicts: Sequence[Verdict], output: View) -> None:
    if (chosen := output.document_format) is not None:
        print(render(to_document(verdicts), chosen), end="")
        return
    # Colours are taken out again where there is no terminal; https://no-color.org asks it of all.
    typer.echo(
        render_checklist(verdicts), nl=False, color=False if os.environ.get("NO_COLOR") else None
    )


def to_document(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The verdicts, and how many of each there are."""
    outcomes = [one.outcome for one in verdicts]
    return {
        "checks": [
            {"check": v.check, "outcome": v.outcome.value, "told": v.told, "todo": v.todo}
            for v in verdicts
        ],
        **{outcome.value.lower(): outcomes.count(outcome) for outcome in Outcome},
    }


def render_checklist(verdicts: Sequence[Verdict]) -> str:
    """A line for each verdict, with another one for what to do."""
    lines = []
    for one in verdicts:
        word = typer.style(f"{one.outcome.value:<7}", fg=_COLOURS[one.outcome])
        lines.append(f"{word}  {one.check}: {one.told}")
        if one.todo:
            lines.append(f"         to do: {one.todo}")
    outcomes = [one.outcome for one in verdicts]
    counted = (f"{outcomes.count(outcome)} {outcome.value}" for outcome in Outcome)
    return "\n".join([*lines, ", ".join(counted), ""])
