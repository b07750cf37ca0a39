"""How much of a card may be used."""

from __future__ import annotations

import pytest

from modelcache_agent.decide.gpu.capacity import CardFigures, make_budget


@pytest.mark.parametrize(
    ("setting", "total", "used", "ours", "capacity", "foreign"),
    [
        pytest.param(80, 100, 0, 0, 80, 0, id="the setting"),
        pytest.param(200, 100, 0, 0, 100, 0, id="no more than the card"),
        pytest.param(80, 100, 90, 0, 10, 90, id="C66 others use nine tenths"),
        pytest.param(80, 100, 90, 50, 60, 40, id="C66 our own bytes are not foreign"),
        pytest.param(80, 100, 100, 30, 30, 70, id="C66 a full card costs us nothing"),
        pytest.param(80, 100, 20, 30, 80, 0, id="figures that lag behind"),
        pytest.param(0, 100, 0, 0, 0, 0, id="off"),
    ],
)
def test_capacity_is_the_setting_or_what_others_leave(
    setting, total, used, ours, capacity, foreign
):
    found = make_budget(setting, CardFigures(total, used), ours_bytes=ours)
    assert (found.capacity_bytes, found.foreign_bytes) == (capacity, foreign)


def test_C64_a_card_that_says_nothing_has_no_capacity():
    assert make_budget(80, CardFigures(None, None), ours_bytes=0).capacity_bytes == 0


def test_what_a_slab_says_of_its_pieces_is_passed_on():
    assert make_budget(80, CardFigures(100, 20), ours_bytes=20).fragmentation is None
    figures = CardFigures(100, 20, fragmentation=0.5)
    assert make_budget(80, figures, ours_bytes=20).fragmentation == 0.5


def test_C64_what_the_host_tier_may_fill_is_not_promised_twice():
    figures = CardFigures(100, 40, is_host_memory=True)
    found = make_budget(80, figures, ours_bytes=0, host_capacity_bytes=50, host_held_bytes=30)
    assert (found.capacity_bytes, found.ceiling_bytes) == (40, 50)
    assert found.is_shared_with_host
    assert "the card's memory is the host's" in found.why


def test_a_lowered_setting_is_a_surplus_and_foreign_use_is_none():
    lowered = make_budget(20, CardFigures(100, 50), ours_bytes=50)
    assert lowered.surplus_bytes(50) == 30
    full = make_budget(80, CardFigures(100, 100), ours_bytes=50)
    assert full.surplus_bytes(50) == 0
