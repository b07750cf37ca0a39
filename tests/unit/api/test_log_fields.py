"""What lines of agent and operator tell of their subject, and the trace between them."""

from __future__ import annotations

import asyncio

import pytest

from modelcache_api.log_fields import (
    TRACE_HEADER,
    about,
    add_fields,
    learn,
    make_trace_header,
    read_trace_header,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_lines_tell_what_the_block_is_about_and_nothing_twice():
    with about(object="cache:search/m", model=""):
        with about(uid="u1"):
            assert add_fields("uid=u1 reason=Cached") == (
                "uid=u1 reason=Cached object=cache:search/m"
            )
        assert add_fields("done") == "done object=cache:search/m"
    assert add_fields("done") == "done"
    assert add_fields("done", node="n1") == "done node=n1"


@pytest.mark.parametrize(
    "told",
    [
        "denied node=n9 trace=t9",
        'the store says: "node=n9 trace=t9 denied"',
        "node=n1 trace=t the store says: (node=n9) trace=t9.",
        "node=n1 trace=t denied\nnode=n9 trace=t9",
        "the store says node=n1x trace=tt",
        "xnode=n1 xtrace=t",
    ],
)
def test_text_of_others_neither_hides_a_field_nor_has_the_last_word(told):
    with about(trace="t"):
        assert add_fields(told, node="n1") == f"{told} node=n1 trace=t"


def test_a_line_that_ends_up_telling_a_field_itself_is_left_as_it_is():
    with about(trace="t"):
        told = "node=n9 was asked for: node=n1 trace=t"
        assert add_fields(told, node="n1") == told


def test_what_is_learned_in_a_block_ends_with_it():
    with about(trace=TRACE):
        learn(node="n1")
        assert add_fields("x") == f"x trace={TRACE} node=n1"
    assert add_fields("x") == "x"


async def test_tasks_keep_their_own_fields_and_give_them_to_what_they_start():
    async def line() -> str:
        await asyncio.sleep(0)
        return add_fields("x")

    async def work(name: str) -> str:
        with about(uid=name):
            return await asyncio.create_task(line())

    assert await asyncio.gather(work("a"), work("b")) == ["x uid=a", "x uid=b"]


def test_a_trace_arrives_as_it_was_sent():
    with about(trace=TRACE):
        header = make_trace_header()[TRACE_HEADER]
    assert read_trace_header(header) == TRACE
    assert make_trace_header() == {}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        TRACE,
        f"00-{TRACE}-b7ad6b7169203331-01 x=y",
        f"00-{TRACE.upper()}-b7ad6b7169203331-01",
        f"00-{0:032}-b7ad6b7169203331-01",
        f"00-{TRACE}\n-b7ad6b7169203331-01",
    ],
)
def test_what_is_no_trace_is_none(header):
    assert read_trace_header(header) == ""
