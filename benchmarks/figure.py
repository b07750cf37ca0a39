"""One measured figure: how it is summarised, printed and kept."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

OUT = Path(__file__).with_name("out")
SCALE = "MODELCACHE_BENCH_SCALE"


@dataclass(frozen=True)
class Figure:
    """Medians over interleaved rounds; `ratios` are ours divided by the named other."""

    name: str
    unit: str
    ours: float
    peers: dict[str, float]
    ceiling: float | None
    rounds: int
    spread: dict[str, list[float]]
    ratios: dict[str, float] = field(default_factory=dict)
    machine: dict[str, object] = field(default_factory=dict)
    notes: str = ""


def make_figure(
    name: str,
    unit: str,
    samples: Mapping[str, Sequence[float]],
    *,
    ceilings: Sequence[str] = (),
    notes: str = "",
) -> Figure:
    """Summarise samples by contender; `ours` is us, `ceilings` bound us together by their least."""
    medians = {key: statistics.median(values) for key, values in samples.items()}
    ceiling = min((medians[key] for key in ceilings), default=None)
    ours = medians["ours"]
    peers = {key: value for key, value in medians.items() if key not in {"ours", *ceilings}}
    others = dict(peers) if ceiling is None else {"ceiling": ceiling, **peers}
    return Figure(
        name=name,
        unit=unit,
        ours=round(ours, 2),
        peers={key: round(value, 2) for key, value in peers.items()},
        ceiling=None if ceiling is None else round(ceiling, 2),
        rounds=len(samples["ours"]),
        spread={key: [round(min(v), 2), round(max(v), 2)] for key, v in samples.items()},
        ratios={key: round(ours / value, 3) for key, value in others.items()},
        machine=describe_machine(),
        notes=notes,
    )


def scale() -> float:
    """What sizes are multiplied by: below 1 only to see that a figure runs."""
    return float(os.environ.get(SCALE, "1"))


def scaled(size: int, least: int = 1) -> int:
    """A size or count of this run."""
    return max(least, int(size * scale()))


def scaled_rounds(rounds: int) -> int:
    """One is enough to see that it runs."""
    return rounds if scale() >= 1 else 1


def interleave(
    contenders: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, list[float]]:
    """Run each contender once a round, one after the other, so that drift meets all alike."""
    samples: dict[str, list[float]] = {key: [] for key in contenders}
    for number in range(rounds):
        for key, run in contenders.items():
            samples[key].append(run())
            print(f"  round {number + 1}/{rounds}  {key:<24} {samples[key][-1]:>10.1f}", flush=True)
    return samples


def keep(figure: Figure) -> None:
    """Write `benchmarks/out/<name>.json`, unless sizes were scaled: that says nothing."""
    if scale() != 1:
        return
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{figure.name}.json"
    path.write_text(json.dumps(asdict(figure), indent=2) + "\n")


def print_table(figures: Sequence[Figure]) -> None:
    """One line for each figure and contender."""
    if scale() != 1:
        print(f"\n{SCALE}={scale()}: these figures say nothing, and are not kept")
    print(f"\n{'figure':<16} {'who':<24} {'value':>12} {'unit':<8} {'ours / this':>12}   spread")
    for figure in figures:
        rows = [("ours", figure.ours), *figure.peers.items()]
        if figure.ceiling is not None:
            rows.append(("ceiling", figure.ceiling))
        for who, value in rows:
            ratio = figure.ratios.get(who)
            shown = "" if ratio is None else f"{ratio:.2f}"
            low, high = figure.spread.get(who, [value, value])
            print(
                f"{figure.name:<16} {who:<24} {value:>12.1f} {figure.unit:<8} {shown:>12}"
                f"   {low:.1f} .. {high:.1f}"
            )
        if figure.notes:
            print(f"{'':<16} {figure.notes}")


def describe_machine() -> dict[str, object]:
    """What the figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
