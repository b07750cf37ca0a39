"""Answers become errors: one table."""

from __future__ import annotations

import json

import pytest

from modelcache_kube import (
    AlreadyExists,
    ApiUnavailable,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
)
from modelcache_kube.errors import make_error


def status(**fields):
    return json.dumps({"kind": "Status", "message": "why", **fields}).encode()


ANSWERS = [
    pytest.param(400, status(), Invalid, id="bad request"),
    pytest.param(401, status(), Forbidden, id="unauthorized"),
    pytest.param(403, status(), Forbidden, id="forbidden"),
    pytest.param(404, status(), NotFound, id="not found"),
    pytest.param(405, status(), Invalid, id="method not allowed"),
    pytest.param(408, status(), ApiUnavailable, id="request time-out"),
    pytest.param(409, status(reason="Conflict"), Conflict, id="conflict"),
    pytest.param(409, status(reason="AlreadyExists"), AlreadyExists, id="already exists"),
    pytest.param(410, status(reason="Expired"), Expired, id="expired"),
    pytest.param(413, status(), Invalid, id="too large"),
    pytest.param(415, status(), Invalid, id="media type"),
    pytest.param(422, status(), Invalid, id="invalid"),
    pytest.param(429, status(), ApiUnavailable, id="too many requests"),
    pytest.param(500, status(), ApiUnavailable, id="internal error"),
    pytest.param(503, status(), ApiUnavailable, id="unavailable"),
    pytest.param(504, status(), ApiUnavailable, id="time-out"),
]


@pytest.mark.parametrize(("code", "body", "kind"), ANSWERS)
def test_kind_of_error(code, body, kind):
    error = make_error(code, body)
    assert type(error) is kind
    assert isinstance(error, KubeError)
    assert (error.code, str(error)) == (code, f"{code}: why")


BODIES = [
    pytest.param(b"<html>" + b"x" * 1000, id="a page of a proxy"),
    pytest.param(b"", id="nothing"),
    pytest.param(b"\xff\xfe", id="no text"),
    pytest.param(b"[1]", id="another JSON"),
    pytest.param(b'{"message": "forged"}', id="no Status"),
    pytest.param(status(details="text"), id="odd details"),
]


@pytest.mark.parametrize("body", BODIES)
def test_any_body_makes_a_short_message(body):
    assert len(str(make_error(503, body))) < 300


RETRIES = [
    pytest.param("7", status(), 7.0, id="header"),
    pytest.param(None, status(details={"retryAfterSeconds": 3}), 3.0, id="details"),
    pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", status(), None, id="a date"),
    pytest.param(None, status(), None, id="nothing"),
    pytest.param("-5", status(), None, id="the past"),
]


@pytest.mark.parametrize(("header", "body", "expected"), RETRIES)
def test_retry_after(header, body, expected):
    assert make_error(429, body, header).retry_after == expected


def test_apply_to_a_replaced_object_is_a_conflict():
    uid, other = {"field": "metadata.uid"}, {"field": "spec"}
    assert type(make_error(422, status(details={"causes": [uid]}))) is Conflict
    assert type(make_error(422, status(details={"causes": [uid, other]}))) is Invalid
    assert type(make_error(422, status(details={"causes": [other]}))) is Invalid


def test_only_an_answer_about_an_object_names_one():
    assert make_error(404, status(details={"name": "x", "kind": "y"})).names_an_object
    assert not make_error(404, status(details={})).names_an_object
    assert not make_error(404, b"404 page not found").names_an_object
