"""Sizes of models and costs of reading them: a file, and draws where a trace states none."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from modelcache_agent.decide.history import LoadCost
from modelcache_api.quantities import parse_bytes
from modelcache_simulator.errors import SimulationError

_BUILT_IN: Final = "catalogue.yaml"


def _parse(value: object) -> int:
    return parse_bytes(str(value))


_Bytes = Annotated[int, BeforeValidator(_parse), Field(gt=0)]


class _Document(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True
    )


class _Cost(_Document):
    start_seconds: Annotated[float, Field(ge=0, lt=1e9)]
    bytes_per_second: _Bytes


class _Model(_Document):
    name: Annotated[str, Field(min_length=1)]
    size: _Bytes


class _File(_Document):
    costs: Mapping[Literal["gpu", "host", "disk", "store"], _Cost] = Field(default_factory=dict)
    models: Annotated[list[_Model], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Sizes by model (bytes), and what reading costs by tier."""

    sizes: Mapping[str, int]
    costs: Mapping[str, LoadCost]


class Relation(StrEnum):
    """How drawn sizes go with popularity."""

    INDEPENDENT = "independent"
    POPULAR_SMALL = "popular-small"
    POPULAR_LARGE = "popular-large"


def load_catalogue(path: Path | None) -> Catalogue:
    """The catalogue of that file, or the built-in one. Costs that it leaves out are built in.

    Raises:
        SimulationError: the file cannot be read or says what is not understood.
    """
    built_in = _read((files("modelcache_simulator") / _BUILT_IN).read_text(), _BUILT_IN)
    if path is None:
        return built_in
    try:
        given = _read(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise SimulationError(f"cannot read the catalogue {path}: {error}") from error
    return Catalogue(given.sizes, {**built_in.costs, **given.costs})


def _read(text: str, name: str) -> Catalogue:
    try:
        parsed = _File.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise SimulationError(f"the catalogue {name} is no YAML: {error}") from error
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"]) or "document"
        raise SimulationError(f"the catalogue {name}: {where}: {problem['msg']}") from error
    sizes = {model.name: model.size for model in parsed.models}
    if len(sizes) < len(parsed.models):
        raise SimulationError(f"the catalogue {name} names a model twice")
    costs: dict[str, LoadCost] = {
        tier: LoadCost(cost.start_seconds, 1 / cost.bytes_per_second)
        for tier, cost in parsed.costs.items()
    }
    return Catalogue(sizes, costs)


def draw_sizes(
    attaches: Mapping[str, int], known: Mapping[str, int], relation: Relation, seed: int
) -> dict[str, int]:
    """A size for each model of a trace: its own, or one drawn from those known."""
    unknown = sorted(attaches.keys() - known.keys(), key=lambda name: (-attaches[name], name))
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    choices: Sequence[int] = sorted(known.values())
    drawn = [rng.choice(choices) for _ in unknown]
    if relation is not Relation.INDEPENDENT:
        drawn.sort(reverse=relation is Relation.POPULAR_LARGE)
    return {name: known[name] for name in attaches if name in known} | dict(
        zip(unknown, drawn, strict=True)
    )
