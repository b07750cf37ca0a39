"""The soak's verdict, and that the fleet's questions count what they should."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from fleet_scene import PREFIX, LabelWatch
from soak import Sample, judge


def run_of(*mib: float, descriptors: int = 40) -> list[Sample]:
    return [Sample(one, descriptors) for one in mib for _ in range(10)]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(run_of(100, 150, 150, 155), id="it fills its buffers at first"),
        pytest.param(run_of(150, 149, 170, 151), id="a peak in the middle"),
        pytest.param([Sample(100.0, 40)], id="a run that was too short to say"),
    ],
)
def test_what_stays_as_it_was_is_no_complaint(samples):
    assert judge("operator-0", samples) is None


def test_a_leak_is_told_with_its_size():
    assert judge("operator-0", run_of(100, 120, 150, 180)) == "operator-0 grew from 120 to 180 MiB"


def test_descriptors_that_are_left_open_are_told():
    samples = [Sample(100.0, 40 + number) for number in range(40)]
    assert "descriptors" in (judge("agent", samples) or "")


def test_a_label_that_goes_and_comes_back_is_a_flap_and_one_that_moves_is_none():
    watch = LabelWatch()
    for node, keys in (("n1", ["a"]), ("n2", []), ("n1", []), ("n2", ["a"])):
        watch.note(node, [PREFIX + key for key in keys])
    assert watch.flaps == 0
    watch.note("n1", [PREFIX + "a", "pool"])
    assert watch.flaps == 1
    watch.note("n1", ["pool"])
    watch.forgive()
    watch.note("n1", [PREFIX + "a"])
    assert watch.flaps == 1
