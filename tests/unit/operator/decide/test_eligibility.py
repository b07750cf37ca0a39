from __future__ import annotations

from builders import GIB, make_book, make_demand
from modelcache_operator.decide.eligibility import describe_room


def test_the_room_of_nodes_that_report_no_disk_is_not_described():
    assert describe_room(make_demand(), [make_book(capacity=None)]) == ""


def test_a_disk_that_shrank_has_nothing_free():
    book = make_book(capacity=GIB, sizes={"other": 3 * GIB})
    assert "has 0 free, 3Gi booked of 1Gi" in describe_room(make_demand(), [book])
    assert make_book(capacity=0).booked_share() == 1.0
