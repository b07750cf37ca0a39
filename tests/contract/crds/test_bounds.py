"""Every bound, enum, default and required field of the schemas, both ways.

The rows are made from the generated schemas, so that none can be forgotten: each field is taken
from the full sample and moved onto its bound (accepted) and past it (refused; the field is named).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from contract.crds.objects import FULL, GONE, MINIMAL, sample_of, value_at, with_value
from modelcache_api.crdgen import KINDS, build_crd
from modelcache_kube import Invalid

pytestmark = pytest.mark.cluster

Path = tuple[str | int, ...]
# How to make a text of any length that the field's pattern lets through: what it begins with.
BEGINNINGS: dict[Path, str] = {
    ("source", "uri"): "s3://models/",
    ("source", "endpoint"): "http://",
    (0, "key"): "a" * 253 + "/",
}
# A pattern fixes the length, or only one item is possible: there is nothing to accept at the bound.
FIXED = {
    "digest",
    "sourceDigest",
    "sourceRevision",
    "contentDigest",
    "contentManifestDigest",
    "recheckInterval",
    "interval",
    "holdFor",
    "deadline",
    "threshold",
    "steps",
    "disk",
    "host",
    "gpu",
    "pinned",
    "revision",
    "status",
    "tiers",
}


def schemas() -> dict[str, Any]:
    found = {}
    for kind in KINDS:
        version = build_crd(kind)["spec"]["versions"][0]
        found[kind.__name__] = version["schema"]["openAPIV3Schema"]
    return found


def fields(kind: str, schema: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """(path in the full sample, schema) of everything below spec and status."""
    for name, child in schema.get("properties", {}).items():
        if path or name in ("spec", "status"):
            yield (*path, name), child
            yield from fields(kind, child, (*path, name))
    if items := schema.get("items"):
        yield (*path, 0), items
        yield from fields(kind, items, (*path, 0))
    if values := schema.get("additionalProperties"):
        yield (*path, next(iter(value_at(FULL[kind], path)))), values


FIELDS = [
    (kind, path, found) for kind, root in schemas().items() for path, found in fields(kind, root)
]


def name_of(path: Path) -> str:
    return next(part for part in reversed(path) if isinstance(part, str))


def rows(keyword: str, make) -> list[Any]:
    made = []
    for kind, path, schema in FIELDS:
        if keyword in schema:
            for index, (value, accepted) in enumerate(make(kind, path, schema)):
                word = "accepted" if accepted else "refused"
                label = ".".join(map(str, path))
                row_id = f"{kind}.{label}-{keyword}-{word}-{index}"
                made.append(pytest.param(kind, path, value, accepted, id=row_id))
    return made


def text(path: Path, length: int) -> str:
    return BEGINNINGS.get(path[-2:], "").ljust(length, "a")


def lengths(_kind, path, schema):
    limit = schema["maxLength"]
    if "enum" not in schema and not (FIXED & {name_of(path)} and schema.get("pattern")):
        yield text(path, limit), True
    yield text(path, limit + 1), False


def shortest(_kind, path, schema):
    yield "a" * schema["minLength"], True
    yield "a" * (schema["minLength"] - 1), False


def items(kind, path, schema):
    sample = value_at(sample_of(kind, path), path)[0]
    keys = schema.get("x-kubernetes-list-map-keys", [])

    def many(count: int):
        if not keys:
            return [sample] * count
        return [{**sample, keys[0]: f"x{index}"} for index in range(count)]

    if name_of(path) not in FIXED:
        yield many(schema["maxItems"]), True
    yield many(schema["maxItems"] + 1), False


def members(_kind, _path, schema):
    yield {f"k{index}": "v" for index in range(schema["maxProperties"])}, True
    yield {f"k{index}": "v" for index in range(schema["maxProperties"] + 1)}, False


def lowest(_kind, path, schema):
    yield schema["minimum"], True
    yield schema["minimum"] - 1, False


def highest(_kind, path, schema):
    if name_of(path) != "minReady":  # more than copies: its own rule, in test_rules
        yield schema["maximum"], True
    yield schema["maximum"] + 1, False


def words(kind, path, schema):
    for word in schema["enum"]:
        yield word, True
    yield "Bogus", False


def whole_numbers(_kind, _path, schema):
    largest = {"int32": 2**31 - 1, "int64": 2**63 - 1}.get(schema["format"])
    if largest is not None and "maximum" not in schema:
        yield largest, True
        yield 1.5, False


BOUNDS = [
    *rows("maxLength", lengths),
    *rows("minLength", shortest),
    *rows("maxItems", items),
    *rows("maxProperties", members),
    *rows("minimum", lowest),
    *rows("maximum", highest),
    *rows("enum", words),
    *rows("format", whole_numbers),
]


async def put(hand, kind: str, body: Any, path: Path) -> Any:
    """The object as stored, with the changed part in it."""
    if path[0] == "status":
        return await hand.create_with_status(kind, body["status"])
    return await hand.create(kind, {"spec": body["spec"]})


@pytest.mark.parametrize(("kind", "path", "value", "accepted"), BOUNDS)
async def test_bound(hand, kind, path, value, accepted):
    body = with_value(sample_of(kind, path), path, value)
    if name_of(path) == "operator" and value == "Exists":
        body = with_value(body, (*path[:-1], "value"), GONE)
    if name_of(path) == "copies" and kind == "ModelCache" and path[0] == "spec":
        body = with_value(body, (*path[:-1], "minReady"), 1)
    if accepted:
        stored = await put(hand, kind, body, path)
        assert value_at(stored, path) == value
        return
    with pytest.raises(Invalid) as refused:
        await put(hand, kind, body, path)
    assert name_of(path) in str(refused.value)


REQUIRED = [
    pytest.param(kind, (*path, name), id=f"{kind}.{'.'.join(map(str, path))}.{name}")
    for kind, path, schema in FIELDS
    for name in schema.get("required", ())
]


@pytest.mark.parametrize(("kind", "path"), REQUIRED)
async def test_required_field_is_named_when_it_is_missing(hand, kind, path):
    body = with_value(sample_of(kind, path), path, GONE)
    with pytest.raises(Invalid, match=rf"{path[-1]}.*[Rr]equired"):
        await put(hand, kind, body, path)


@pytest.mark.parametrize("kind", list(MINIMAL))
async def test_spec_is_required(hand, kind):
    with pytest.raises(Invalid, match=r"spec: Required value"):
        await hand.create(kind, {})


DEFAULTS = [
    pytest.param(kind, path, schema["default"], id=f"{kind}.{'.'.join(map(str, path))}")
    for kind, path, schema in FIELDS
    if "default" in schema
]


@pytest.mark.parametrize(("kind", "path", "default"), DEFAULTS)
async def test_default_is_filled_in_where_the_field_is_absent(hand, kind, path, default):
    body = with_value(sample_of(kind, path), path, GONE)
    if name_of(path) == "copies":  # the default is below the sample's minReady
        body = with_value(body, ("spec", "placement", "minReady"), 1)
    stored = await put(hand, kind, body, path)
    assert value_at(stored, path) == default


@pytest.mark.parametrize("placement", [{}, {"copies": 1}, {"minReady": 1}], ids=str)
async def test_placement_is_completed_when_only_a_part_is_given(hand, placement):
    body = with_value(MINIMAL["ModelCache"], ("spec", "placement"), placement)
    stored = await hand.create("ModelCache", body)
    assert stored["spec"]["placement"] == {"copies": 1, "minReady": 1}


async def test_placement_is_there_when_absent(hand):
    stored = await hand.create("ModelCache", MINIMAL["ModelCache"])
    assert stored["spec"]["placement"] == {"copies": 1, "minReady": 1}
