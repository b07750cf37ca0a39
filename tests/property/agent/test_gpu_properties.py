"""Extents, budgets and victims of a card, whatever the figures."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_agent.decide.gpu.capacity import Budget, CardFigures, make_budget
from modelcache_agent.decide.gpu.extents import (
    MOST_EXTENT_BYTES,
    ExtentRules,
    FileShape,
    cut_extents,
    find_spans,
    place_files,
)
from modelcache_agent.decide.gpu.room import Candidate, Key, Room, make_room
from modelcache_api.device_layout import (
    MOST_EXTENTS,
    DeviceLayout,
    LayoutFormatError,
    encode_layout,
    parse_layout,
)

GRANULARITY = 2 << 20
BYTES = st.integers(0, 1 << 50)
SMALL = st.integers(0, 1000)


@given(st.integers(1, 300 << 30))
def test_extents_hold_the_content_and_little_more(size):
    extents = cut_extents(size, ExtentRules(GRANULARITY))
    assert sum(extents) >= size > sum(extents) - GRANULARITY
    assert len(extents) <= MOST_EXTENTS
    assert all(extent % GRANULARITY == 0 for extent in extents)
    if size <= MOST_EXTENTS * MOST_EXTENT_BYTES:
        assert max(extents) <= MOST_EXTENT_BYTES
    assert len(cut_extents(size, ExtentRules(GRANULARITY, None))) == 1


FILES = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 500)).map(
        lambda pair: FileShape("f", pair[0] + pair[1], pair[1])
    ),
    min_size=1,
    max_size=9,
)


@given(FILES, st.integers(1, 400), st.data())
def test_files_lie_apart_aligned_and_every_run_is_found_in_the_extents(files, granularity, data):
    placed = place_files(files)
    for file, place in zip(files, placed, strict=True):
        assert (place.offset + file.data_begin) % 256 == 0
        assert place.size_bytes == file.size_bytes
    for before, after in pairwise(placed):
        assert before.offset + before.size_bytes <= after.offset
    end = max(place.offset + place.size_bytes for place in placed)
    extents = cut_extents(end, ExtentRules(granularity, 4 * granularity))
    offset = data.draw(st.integers(0, end))
    length = data.draw(st.integers(0, end - offset))
    spans = find_spans(extents, offset, length)
    assert sum(span.length for span in spans) == length
    cursor = offset
    for span in spans:
        assert sum(extents[: span.extent]) + span.offset == cursor
        assert span.offset + span.length <= extents[span.extent]
        cursor += span.length


@given(BYTES, BYTES, BYTES, BYTES, BYTES, st.booleans())
def test_a_budget_never_exceeds_setting_or_card_and_takes_nothing_from_others(
    setting, total, used, ours, host, is_host_memory
):
    figures = CardFigures(total, min(used, total), is_host_memory)
    found = make_budget(setting, figures, ours_bytes=ours, host_capacity_bytes=host)
    assert 0 <= found.capacity_bytes <= found.ceiling_bytes <= min(setting, total)
    assert found.foreign_bytes == max(0, figures.used_bytes - ours)
    assert found.capacity_bytes + found.foreign_bytes <= max(total, found.foreign_bytes)
    assert 0 <= found.surplus_bytes(ours) <= ours
    if is_host_memory:
        assert found.is_shared_with_host
        assert found.capacity_bytes + host <= max(total, host), "no byte is promised twice"


@given(
    SMALL,
    SMALL,
    SMALL,
    st.lists(st.tuples(SMALL, st.booleans()), max_size=8),
    st.booleans(),
)
def test_victims_make_room_are_free_to_go_and_none_is_in_vain(
    needed, capacity, beyond, sizes, was_refused
):
    candidates = [
        Candidate(Key("ns", str(number)), size, attached)
        for number, (size, attached) in enumerate(sizes)
    ]
    budget = Budget(capacity, capacity + beyond, 0, is_shared_with_host=False, why="")
    found = make_room(needed, budget, candidates, was_refused=was_refused)
    held = sum(candidate.size_bytes for candidate in candidates)
    free = 0 if was_refused else capacity - held
    movable = {c.key: c.size_bytes for c in candidates if not c.is_attached}
    fits = needed <= free + sum(movable.values()) and needed <= budget.ceiling_bytes
    assert isinstance(found, Room) == fits
    if isinstance(found, Room):
        freed = [movable[key] for key in found.victims]
        assert free + sum(freed) >= needed
        assert all(free + sum(freed) - size < needed for size in freed if size)


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=9), st.booleans(), st.text())
def test_a_layout_is_read_as_it_was_written(extents, is_emulated, text):
    layout = DeviceLayout("GPU-1", is_emulated, text, tuple(extents), ())
    assert parse_layout(encode_layout(layout)) == layout


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner)),
    max_leaves=6,
)
GOOD = {
    "format": 1,
    "device": "GPU-1",
    "emulated": False,
    "contentDigest": "sha256:0",
    "extents": [10, 10],
    "files": [["a.safetensors", 0, 15], ["b.safetensors", 15, 5]],
}


@given(st.sampled_from(sorted(GOOD)), ANYTHING)
def test_a_layout_with_one_wrong_field_is_refused_or_keeps_every_file_within_the_extents(
    field, value
):
    try:
        found = parse_layout(json.dumps({**GOOD, field: value}).encode())
    except LayoutFormatError as error:
        assert "layout" in str(error) or "overlaps" in str(error)  # noqa: PT017 - or it is read
        return
    assert all(file.offset + file.size_bytes <= found.total_bytes for file in found.files)
    for before, after in pairwise(sorted(found.files, key=lambda file: file.offset)):
        assert before.offset + before.size_bytes <= after.offset


@given(st.one_of(st.binary(max_size=300), st.text().map(str.encode)))
def test_what_is_no_layout_is_refused_in_one_way(document):
    with pytest.raises(LayoutFormatError, match="the layout"):
        parse_layout(document)
