from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_agent.fetch.refusal import Cure, Refusal, bound
from modelcache_agent.fetch.s3_error import S3Error, parse_s3_error
from modelcache_agent.fetch.verdict import (
    Ask,
    Body,
    Head,
    if_match_value,
    judge_failure,
    judge_foreign_body,
    judge_success,
    opaque_etag,
)
from modelcache_api.names import Reason

ASK = Ask("m.bin", 1000, '"e"', 100, 200)


@pytest.mark.parametrize(
    ("etag", "token", "if_match"),
    [
        ('"abc-3"', "abc-3", '"abc-3"'),
        ("abc", "abc", '"abc"'),
        ('W/"abc"', "abc", None),
        ("", None, None),
        ('""', None, None),
        (None, None, None),
    ],
)
def test_C05_etag_is_an_opaque_token(etag, token, if_match):
    assert opaque_etag(etag) == token
    assert if_match_value(etag) == if_match


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (Head(206, content_range="bytes 100-199/1000"), Body(100, 200)),
        (Head(206, content_range="bytes 100-199/*", content_length=100), Body(100, 200)),
        (Head(206, content_range="bytes 100-149/1000"), Body(100, 150)),
        (Head(206, etag='W/"e"', content_range="bytes 100-199/1000"), Body(100, 200)),
        (Head(200, content_length=1000), Body(0, 1000)),
        (Head(200), Body(0, 1000)),
    ],
)
def test_bytes_that_a_success_brings(head, body):
    assert judge_success(ASK, head) == body


DATE, OTHER_DATE = "Wed, 01 Jan 2020 00:00:00 GMT", "Thu, 02 Jan 2020 00:00:00 GMT"
DATED = Ask("m.bin", 1000, None, 100, 200, DATE)
RANGE = "bytes 100-199/1000"


@pytest.mark.parametrize(
    ("ask", "head", "is_taken"),
    [
        pytest.param(DATED, Head(206, content_range=RANGE, last_modified=DATE), True, id="same"),
        pytest.param(
            DATED, Head(206, content_range=RANGE, last_modified=OTHER_DATE), False, id="another"
        ),
        pytest.param(DATED, Head(206, content_range=RANGE), False, id="none"),
        pytest.param(DATED, Head(200, last_modified=OTHER_DATE), False, id="another whole file"),
        pytest.param(
            ASK, Head(206, '"e"', RANGE, last_modified=OTHER_DATE), True, id="an ETag is enough"
        ),
    ],
)
def test_C12_a_date_guards_a_file_without_etag(ask, head, is_taken):
    found = judge_success(ask, head)
    assert isinstance(found, Body) is is_taken
    if isinstance(found, Refusal):
        assert (found.reason, found.cure) == (Reason.SOURCE_CHANGED, Cure.NONE)
    assert DATE in judge_failure(DATED, Head(412), b"").message


@pytest.mark.parametrize(
    ("head", "is_taken"),
    [
        pytest.param(Head(200, content_length=1000, content_encoding="gzip"), True, id="stored so"),
        pytest.param(Head(206, content_range=RANGE, content_encoding="gzip"), True, id="a range"),
        pytest.param(Head(200, content_length=77, content_encoding="GZIP"), False, id="shorter"),
        pytest.param(Head(200, content_encoding="br"), False, id="of a length not told"),
        pytest.param(
            Head(206, content_range="bytes 100-199/777", content_encoding="zstd"), False, id="part"
        ),
        pytest.param(
            Head(206, '"e-gzip"', "bytes 100-199/777", content_encoding="x-gzip"), False, id="etag"
        ),
        pytest.param(
            Head(206, content_range=RANGE, content_encoding="aws-chunked"), True, id="no packing"
        ),
    ],
)
def test_what_is_compressed_on_the_way_is_no_file(head, is_taken):
    """Stores keep the word for objects that were put compressed; those are as long as listed."""
    found = judge_success(ASK, head)
    assert isinstance(found, Body) is is_taken
    if isinstance(found, Refusal):
        assert (found.reason, found.cure) == (Reason.SOURCE_ERROR, Cure.NONE)
        assert "compresses it" in found.message


@pytest.mark.parametrize(
    "head",
    [
        Head(206, content_range="bytes 100-199/999"),
        Head(206, content_range="bytes 99-199/1000"),
        Head(206, content_range="bytes 100-200/1000"),
        Head(206, content_range="bytes 100-99/1000"),
        Head(206, content_range="lines 100-199/1000"),
        Head(206),
        Head(206, etag='"f"', content_range="bytes 100-199/1000"),
        Head(200, content_length=999),
    ],
)
def test_C06_anything_else_is_a_changed_source(head):
    verdict = judge_success(ASK, head)
    assert isinstance(verdict, Refusal)
    assert verdict.reason == Reason.SOURCE_CHANGED
    assert verdict.cure is Cure.NONE


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("/b/m.bin?X-Amz-Signature=5ec2e7", id="the request's own target"),
        pytest.param("https://user:pass@evil.example/", id="an address"),
        pytest.param("//evil.example", id="an address without a scheme"),
        pytest.param("\x1b[31mred\r\n", id="control characters"),
        pytest.param("e" * 2000 + "?", id="long"),
    ],
)
@pytest.mark.parametrize("field", ["etag", "content_range"])
def test_a_header_that_may_hold_an_address_or_a_secret_is_not_shown(field, value):
    verdict = judge_success(ASK, Head(206, **{field: value}))
    assert verdict.reason == Reason.SOURCE_CHANGED
    assert "(not shown)" in verdict.message


def test_a_harmless_header_is_shown():
    verdict = judge_success(ASK, Head(206, etag='"0a1b-2"'))
    assert "'0a1b-2'" in verdict.message


def test_C20_page_in_place_of_weights_is_named():
    changed = judge_success(ASK, Head(200, content_length=70))
    page = judge_foreign_body(ASK, changed, b"<!doctype html><html>")
    assert page.reason == Reason.NOT_A_MODEL
    assert "HTML" in page.message
    assert judge_foreign_body(ASK, changed, b"\x00\x01") is changed


@given(
    st.integers(300, 599),
    st.binary(max_size=300),
    st.text(max_size=40),
    st.text(max_size=40),
)
def test_no_answer_breaks_the_judge_and_messages_stay_bounded(status, body, retry, date):
    head = Head(status, retry_after=retry, date=date, received_at=time.time())
    refusal = judge_failure(ASK, head, body)
    assert len(refusal.message) < 512
    assert refusal.message.isprintable()


def test_error_bodies_never_reach_the_message():
    body = b"<Error><Code>AccessDenied</Code><Message>secret-token</Message></Error>"
    refusal = judge_failure(ASK, Head(403), body)
    assert "AccessDenied" in refusal.message
    assert "secret-token" not in refusal.message


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", S3Error()),
        (b"<Error><Code>No Such</Code></Error>", S3Error()),
        (b"<Error><Code>" + b"A" * 65 + b"</Code></Error>", S3Error()),
        (b"x" * 20_000 + b"<Code>SlowDown</Code>", S3Error()),
        (b"<!ENTITY a 'b'><Code>&a;</Code>", S3Error()),
        (b"<Code>NoSuchKey</Code>", S3Error("NoSuchKey")),
        (b"<Code>ExpiredToken</Code>", S3Error("ExpiredToken", None, is_expired=True)),
        (
            b"<Code>AccessDenied</Code><Message>Request has expired</Message>",
            S3Error("AccessDenied", None, is_expired=True),
        ),
        (b"<Code>AccessDenied</Code><Message>no</Message>", S3Error("AccessDenied")),
        (
            b"<Code>RequestTimeTooSkewed</Code><ServerTime>2026-01-02T03:04:05Z</ServerTime>",
            S3Error("RequestTimeTooSkewed", "2026-01-02T03:04:05Z"),
        ),
    ],
)
def test_error_bodies_are_read_by_bounded_patterns(body, error):
    assert parse_s3_error(body) == error


def test_messages_are_bounded():
    assert len(bound("y" * 5000)) == 512
