"""Who gives way on a card, and what is said to who does not come."""

from __future__ import annotations

import pytest

from modelcache_agent.decide.gpu.capacity import CardFigures, make_budget
from modelcache_agent.decide.gpu.room import Candidate, Key, Room, make_room
from modelcache_api.names import Reason

OLD, NEW = (Key("search", name) for name in ("old", "new"))


def a_budget(setting=100, used=0, ours=0):
    return make_budget(setting, CardFigures(100, used), ours_bytes=ours)


def test_C16_what_never_fits_on_a_card_evicts_nobody():
    stay = make_room(101, a_budget(), [Candidate(OLD, 60)])
    assert stay.reason is Reason.NEVER_FITS
    assert stay.message == "101 bytes are needed and 100 can be had at most on this card"


def test_C16_what_pods_map_keeps_its_place_and_the_newcomer_hears_the_numbers():
    stay = make_room(60, a_budget(), [Candidate(OLD, 50, is_attached=True), Candidate(NEW, 5)])
    assert stay.reason is Reason.GPU_OUT_OF_MEMORY
    assert "60 bytes are needed, 45 are free and 5 could be given up" in stay.message


def test_C16_what_fits_asks_nobody_to_go():
    assert make_room(40, a_budget(), [Candidate(OLD, 60)]) == Room()


@pytest.mark.parametrize(
    ("used", "ours", "surplus"),
    [
        pytest.param(80, 80, 0, id="all of it is ours"),
        pytest.param(100, 80, 0, id="others have what we left"),
        pytest.param(120, 80, 20, id="others have more than that"),
        pytest.param(500, 80, 80, id="never more than we hold"),
    ],
)
def test_C54_what_others_take_of_a_card_is_given_up_and_no_more_than_is_ours(used, ours, surplus):
    budget = a_budget(used=used, ours=ours)
    assert budget.foreign_bytes == used - ours
    assert budget.surplus_bytes(ours) == surplus
