from __future__ import annotations

import pytest

from modelcache_operator.file_answer import build_file_answer

BODY = b"0123456789"


@pytest.mark.parametrize(
    ("asked", "status", "body", "span"),
    [
        (None, 200, BODY, None),
        ("bytes=0-9", 206, BODY, "bytes 0-9/10"),
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=8-", 206, b"89", "bytes 8-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=10-11", 416, None, "bytes */10"),
        ("bytes=4-2", 416, None, "bytes */10"),
        ("bytes=0-1,4-5", 200, BODY, None),
        ("lines=1-2", 200, BODY, None),
    ],
)
def test_ranges(asked, status, body, span):
    answer = build_file_answer(BODY, asked)
    assert (answer.status, answer.body, answer.headers.get("Content-Range")) == (status, body, span)
